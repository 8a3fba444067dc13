"""When two scales of time agree, and what is said about the rate up to which they do."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from experiments.suite.emulation_check import (
    PLAIN_TCP,
    check_envelope,
    render_envelope,
    slowed_down,
)
from ps_allreduce.errors import UserError
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.network import EmulatedNetwork
from ps_allreduce.point.resources import Spread
from ps_allreduce.point.workload import EmulatedCompute, Workload
from ps_allreduce.record.records import LinkRecord, PortRecord, RunRecord
from tests.analysis.builders import metrics, run, save_all
from tests.fakes import make_experiment


def whole(num_hosts: int = 3) -> Experiment:
    return make_experiment(
        num_workers=num_hosts,
        launcher="emulated",
        spread=Spread(),
        network=EmulatedNetwork(num_hosts=num_hosts, bits_per_s=1e9),
        workload=Workload(emulated=EmulatedCompute(forward_s=0.04, backward_s=0.08)),
    )


def launches(point: Experiment, scale: int, step_s: Mapping[int, float]) -> list[RunRecord]:
    slow = slowed_down(point, scale)
    assert slow is not None
    return [
        run(slow, 1 / seconds, repetition, metrics=metrics(1 / seconds, step_time_p50_s=seconds))
        for repetition, seconds in step_s.items()
    ]


def test_twice_the_step_time_at_half_the_rate_is_perfect(tmp_path: Path) -> None:
    fast = launches(whole(), 1, {0: 0.1, 1: 0.2, 2: 0.4, 3: 1.0})
    slow = launches(whole(), 2, {0: 0.2, 1: 0.4, 2: 0.84})
    save_all(tmp_path / "emulation-check", fast, slow)
    found, half = check_envelope(tmp_path).to_dict("records")
    assert (found["ratio"], found["low"], found["num_pairs"]) == (1.0, 1.0, 3)
    assert found["high"] == pytest.approx(1.05)
    assert (found["bits_per_s"], found["num_hosts"], found["holds"]) == (1e9, 3, True)
    assert (half["bits_per_s"], half["num_pairs"], half["holds"]) == (5e8, 0, None)


def test_launches_are_pairs_where_they_were_made_in_turn(tmp_path: Path) -> None:
    fast = launches(whole(), 1, {0: 0.1, 1: 0.1, 2: 0.1})
    *slow, late = launches(whole(), 2, {0: 0.2, 1: 0.2, 2: 0.3})
    late = replace(late, started_at="2026-01-01T09:00:00Z", finished_at="2026-01-01T09:00:20Z")
    save_all(tmp_path / "emulation-check", fast, [*slow, late])
    found, _ = check_envelope(tmp_path).to_dict("records")
    assert (found["num_pairs"], found["high"]) == (2, 1.0)


def test_a_rate_that_was_tried_later_is_compared_by_repetition(tmp_path: Path) -> None:
    late = [
        replace(record, started_at=f"2026-01-01T09:0{record.repetition}:00Z")
        for record in launches(whole(), 2, {0: 0.2, 1: 0.2})
    ]
    save_all(tmp_path / "emulation-check", launches(whole(), 1, {0: 0.1, 1: 0.1}), late)
    found, _ = check_envelope(tmp_path).to_dict("records")
    assert (found["num_pairs"], found["ratio"]) == (2, 1.0)


@pytest.mark.parametrize(("ratio", "holds"), [(1.015, True), (0.96, False), (1.05, False)])
def test_the_envelope_is_the_highest_rate_that_held(
    ratio: float, holds: bool, tmp_path: Path
) -> None:
    folder = tmp_path / "emulation-check"
    three = [launches(whole(), scale, {0: time}) for scale, time in ((1, 0.1), (2, 0.18))]
    save_all(folder, *three, launches(whole(), 4, {0: 0.36 * ratio}))
    four = [launches(whole(4), scale, {0: 0.1 * scale}) for scale in (1, 2)]
    save_all(folder, *four)
    text = render_envelope(check_envelope(tmp_path))
    assert "0.900" in text[1]
    assert text[3].split()[:6] == ["ps_sync", "3", "0.0", "250mbit", "-", "-"]
    three_hosts = (
        "ps_sync, 3 hosts: emulation can be trusted within 3% up to 500mbit on this machine"
        if holds
        else "ps_sync, 3 hosts: emulation cannot be trusted at 500mbit or above on this machine: "
        "its processors are the limit"
    )
    assert text[6:] == [
        three_hosts,
        "ps_sync, 4 hosts: emulation can be trusted within 3% up to 1gbit on this machine",
    ]


def test_a_rate_above_one_that_did_not_hold_is_not_trusted(tmp_path: Path) -> None:
    times = {1: 0.1, 2: 0.2, 4: 0.42}
    save_all(
        tmp_path / "emulation-check", *(launches(whole(), n, {0: t}) for n, t in times.items())
    )
    assert "cannot be trusted at 500mbit or above" in render_envelope(check_envelope(tmp_path))[-1]


def test_slower_time_also_lets_tcp_wait_longer_and_keeps_the_bytes_of_ports() -> None:
    slow = slowed_down(whole(), 4)
    assert slow is not None
    assert slow.network == EmulatedNetwork(num_hosts=3, bits_per_s=2.5e8, rto_min_s=0.8)


def two_scales(*dropped: int | None) -> list[RunRecord]:
    """A launch at the whole rate for each number of packets that a port lost; None: unknown."""
    fast = launches(whole(), 1, dict.fromkeys(range(len(dropped)), 0.1))
    half = replace(launches(whole(), 2, {0: 0.2})[0], ports=(PortRecord(host="n1", dropped=0),))
    ports = [() if each is None else (PortRecord(host="n1", dropped=each),) for each in dropped]
    return [half, *(replace(f, ports=p) for f, p in zip(fast, ports, strict=True))]


@pytest.mark.parametrize(
    ("dropped", "lost", "said"),
    [
        ((0, 0), 0, "ports lost no packet with 0.0004 MB of gradients at 1gbit"),
        ((0, 7), 7, "ports lost 7 packets with 0.0004 MB of gradients at 1gbit"),
        ((0, None), None, "ports lost no packet with 0.0004 MB of gradients at 500mbit"),
    ],
)
def test_packets_that_ports_lost_are_added_up_and_named(
    dropped: tuple[int | None, ...], lost: int | None, said: str, tmp_path: Path
) -> None:
    save_all(tmp_path / "emulation-check", two_scales(*dropped))
    envelope = check_envelope(tmp_path)
    assert json.loads(envelope.to_json())["port_drops"]["0"] == lost
    trusted = "ps_sync, 3 hosts: emulation can be trusted within 3% up to 1gbit on this machine"
    assert render_envelope(envelope)[-1] == f"{trusted}; {said}"


def test_plain_tcp_stands_beside_training_and_is_judged_by_what_ports_lose(tmp_path: Path) -> None:
    points = [replace(each, links=(STREAM,)) for each in two_scales(0)]
    save_all(tmp_path / "emulation-check", points)
    plain = {"strategy": PLAIN_TCP, "bits_per_s": 1e9, "reached": 0.95, "num_pairs": 0}
    found = [{**plain, "num_hosts": n, "port_drops": n - 2} for n in (2, 4)]
    envelope = check_envelope(tmp_path, found)
    assert list(envelope["reached"]) == [0.95, 0.95, 0.5, 1.0]
    assert render_envelope(envelope)[-3:-1] == [
        "plain TCP, 2 hosts: ports lost no packet at 1gbit",
        "plain TCP, 4 hosts: ports lost 2 packets at 1gbit",
    ]


STREAM = LinkRecord(source="n1", target="n2", bits_per_s=5e8, round_trip_s=1e-3)


def test_one_scale_is_too_few(tmp_path: Path) -> None:
    save_all(tmp_path / "emulation-check", launches(whole(), 1, {0: 0.1}))
    with pytest.raises(UserError, match="no two scales of a point that both ended well"):
        check_envelope(tmp_path)
