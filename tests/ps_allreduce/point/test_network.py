from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ps_allreduce.errors import UserError
from ps_allreduce.point.network import (
    MAX_RATE,
    MIN_RATE,
    EmulatedNetwork,
    Traffic,
    parse_rate,
    render_rate,
)


def network(**changes: Any) -> EmulatedNetwork:
    return EmulatedNetwork(**({"num_hosts": 4, "bits_per_s": 1e9} | changes))


@pytest.mark.parametrize(
    ("bits_per_s", "text"), [(1e9, "1gbit"), (2.5e9, "2.5gbit"), (1e8, "100mbit"), (999, "999bit")]
)
def test_rates_are_shown_in_the_largest_unit_that_fits(bits_per_s: float, text: str) -> None:
    assert render_rate(bits_per_s) == text


@given(st.floats(MIN_RATE, MAX_RATE))
def test_a_rate_that_is_shown_can_be_read(bits_per_s: float) -> None:
    assert math.isclose(parse_rate(render_rate(bits_per_s)), bits_per_s, rel_tol=1e-11)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"bits_per_s": math.nan}, "rate of an emulated link"),
        ({"delay_s": -0.001}, "delay"),
        ({"delay_s": math.nan}, "delay"),
        ({"slow_host": 0, "slow_bits_per_s": math.inf}, "slow host's link"),
    ],
)
def test_impossible_networks_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        network(**changes)


@pytest.mark.parametrize(
    ("changes", "racks"),
    [
        ({"num_hosts": 2, "racks": 2}, [0, 1]),
        ({"num_hosts": 4, "racks": 2}, [0, 0, 1, 1]),
        ({"num_hosts": 5, "racks": 2}, [0, 0, 0, 1, 1]),
        ({}, [0, 0, 0, 0]),
    ],
)
def test_the_first_half_of_the_hosts_is_in_the_first_rack(
    changes: dict[str, Any], racks: list[int]
) -> None:
    some = network(**changes)
    assert [some.rack_of(host) for host in range(some.num_hosts)] == racks


def test_a_slow_host_has_a_link_of_its_own() -> None:
    uneven = network(slow_host=2, slow_bits_per_s=1e8)
    assert [uneven.link_bits_per_s(host) for host in range(4)] == [1e9, 1e9, 1e8, 1e9]


def test_scaling_changes_rates_and_delays_against_each_other_and_no_limit_stays_none() -> None:
    assert network(bits_per_s=None).scaled(10) == network(bits_per_s=None, rto_min_s=0.02)
    original = network(
        delay_s=0.001, slow_host=0, slow_bits_per_s=1e8, racks=2, uplink_bits_per_s=2e9
    )
    assert original.scaled(0.5) == network(
        bits_per_s=5e8,
        delay_s=0.002,
        slow_host=0,
        slow_bits_per_s=5e7,
        racks=2,
        uplink_bits_per_s=1e9,
        rto_min_s=0.4,
    )


@pytest.mark.parametrize("factor", [0, -1, math.nan, math.inf])
def test_a_scale_is_a_number_above_zero(factor: float) -> None:
    with pytest.raises(UserError, match="above 0"):
        network().scaled(factor)


EVERYWHERE, TO_ONE = Traffic(bits_per_s=2e8), Traffic(bits_per_s=5e7, source=2, target=0)


def test_traffic_is_told_in_words() -> None:
    busy = network(traffic=(EVERYWHERE, TO_ONE))
    told = "1gbit, traffic 200mbit on every link, traffic 50mbit from host 2 to 0"
    assert str(busy) == told
    assert str(busy.scaled(0.5)).endswith(
        "traffic 100mbit on every link, traffic 25mbit from host 2 to 0"
    )


@pytest.mark.parametrize(("size", "text"), [(32 << 10, "32.8 kB"), (4 << 20, "4194 kB")])
def test_a_port_is_told_in_plain_digits(size: int, text: str) -> None:
    assert str(network(port_buffer_bytes=size)) == f"1gbit, ports of {text}"


def test_traffic_on_every_link_is_a_ring_to_which_others_add() -> None:
    busy = network(num_hosts=3, traffic=(EVERYWHERE, TO_ONE, TO_ONE))
    assert busy.streams() == {(0, 1): 2e8, (1, 2): 2e8, (2, 0): 3e8}
    assert [busy.traffic_at(host) for host in range(4)] == [
        *((2e8, 3e8), (2e8, 2e8), (3e8, 2e8), (0, 0)),
    ]
