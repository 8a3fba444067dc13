"""Slow hosts are named, and nobody else."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import assume, given
from hypothesis import strategies as st

from launchers.doctor.checks.speed import (
    computing,
    hosts_with_slow_links,
    links,
    slow_links,
    slower_than_others,
)
from launchers.doctor.findings import Level
from launchers.doctor.site_facts import SiteFacts
from ps_allreduce.record.records import LinkRecord
from tests.examples import fast
from tests.launchers.doctor import doctor_facts as made
from tests.launchers.doctor.doctor_facts import HOSTS, healthy, levels, only


def test_a_host_that_computes_slowly_is_named() -> None:
    facts = healthy(flops={"n10": 1.00e12, "n1": 0.70e12, "n9": 0.98e12})
    finding = only(computing(facts), Level.FAILURE)
    assert finding.text == "n1 700.0 GFLOP/s, the others 990.0"
    assert finding.leave_out == ("n1",)


def test_of_two_hosts_the_slower_one_is_named() -> None:
    facts = healthy(("n10", "n1"), flops={"n10": 1e12, "n1": 0.5e12})
    assert only(computing(facts), Level.FAILURE).leave_out == ("n1",)


def test_a_host_that_does_not_compute_is_named() -> None:
    facts = healthy(flops={"n10": 1e12, "n1": 1e12})
    finding = only(computing(facts), Level.FAILURE)
    assert (finding.text, finding.leave_out) == ("n9 did not compute", ("n9",))


def test_hosts_of_one_machine_are_not_compared() -> None:
    facts = healthy(one_machine=True, flops={"n10": 5e10})
    assert only(computing(facts), Level.OK).text.startswith("50.0 GFLOP/s")


def test_equal_hosts_are_well() -> None:
    found = [*computing(healthy()), *links(healthy())]
    assert levels(found) == [Level.OK, Level.OK]
    assert found[1].text == (
        "9.4 Gbit/s to 9.4 Gbit/s per direction, both at once; a round trip takes 50 us"
    )


def with_rates(slower: dict[tuple[str, str], float], hosts: tuple[str, ...] = HOSTS) -> SiteFacts:
    every = made.links(hosts)
    return healthy(
        hosts,
        links=tuple(
            replace(one, bits_per_s=slower.get((one.source, one.target), one.bits_per_s))
            for one in every
        ),
    )


def test_a_host_with_slow_links_is_named() -> None:
    slow = {(a, b): 9.4e8 for a in HOSTS for b in HOSTS if "n1" in (a, b)}
    finding = only(links(with_rates(slow)), Level.FAILURE)
    assert finding.text == (
        "n1 sends 940 Mbit/s at most and receives 940 Mbit/s; the others' median link carries "
        "9.4 Gbit/s"
    )
    assert finding.leave_out == ("n1",)


def test_a_host_that_is_slow_in_one_direction_is_named() -> None:
    slow = {("n10", "n1"): 9.4e8, ("n9", "n1"): 9.4e8}
    assert only(links(with_rates(slow)), Level.FAILURE).leave_out == ("n1",)


def test_a_slow_pair_of_fast_hosts_accuses_neither() -> None:
    hosts = ("n10", "n1", "n9", "n2")
    finding = only(links(with_rates({("n10", "n9"): 9.4e8}, hosts)), Level.WARNING)
    assert finding.text == "1 of 12 links below 0.8 of their median: n10 to n9 940 Mbit/s"
    assert finding.leave_out == ()


def test_of_two_hosts_nobody_can_tell_whose_link_is_slow() -> None:
    facts = with_rates({("n10", "n1"): 1e9}, ("n10", "n1"))
    assert only(links(facts), Level.WARNING).leave_out == ()


def test_a_measurement_that_came_to_nothing_is_told() -> None:
    facts = healthy(links=(), links_trouble="the links of n9 cannot be measured: timed out")
    assert only(links(facts), Level.FAILURE).text.endswith("timed out")


def test_one_host_has_no_link() -> None:
    assert only(links(healthy(("n1",), links=())), Level.OK).text == "one host, no link"


@fast
@given(
    st.dictionaries(st.text(min_size=1), st.floats(0.9, 1.1), min_size=3, max_size=20),
    st.floats(0.001, 0.6),
    st.data(),
)
def test_one_slow_host_never_makes_others_look_slow(
    rates: dict[str, float], factor: float, data: st.DataObject
) -> None:
    victim = data.draw(st.sampled_from(sorted(rates)))
    assert slower_than_others(rates) == ()
    assert slower_than_others(rates | {victim: rates[victim] * factor}) == (victim,)


@fast
@given(
    st.integers(4, 12),
    st.lists(st.floats(0.95, 1.05), min_size=132, max_size=132),
    st.floats(0.01, 0.7),
    st.integers(0, 11),
)
def test_one_host_with_a_slow_network_card_is_the_one_that_is_named(
    num_hosts: int, noise: list[float], factor: float, victim: int
) -> None:
    assume(victim < num_hosts)
    hosts = [f"n{number}" for number in range(num_hosts)]
    pairs = [(a, b) for a in hosts for b in hosts if a != b]
    every = [
        LinkRecord(
            source=a,
            target=b,
            bits_per_s=1e9 * share * (factor if f"n{victim}" in (a, b) else 1.0),
            round_trip_s=1e-4,
        )
        for (a, b), share in zip(pairs, noise, strict=False)
    ]
    assert hosts_with_slow_links(every) == (f"n{victim}",)
    assert all(f"n{victim}" in (one.source, one.target) for one in slow_links(every))
