"""When two time scales agree, and what is said about the rate up to which they do."""

from __future__ import annotations

import pytest

from experiments.suite.emulation_check import (
    COMPUTE,
    PROFILE,
    TOLERANCE,
    Agreement,
    compare_scales,
    points_at,
    render_agreements,
)
from ps_allreduce.point.network import EmulatedNetwork

NETWORK = EmulatedNetwork(num_hosts=3, bits_per_s=1e9)


def agreement(ratio: float, bits_per_s: float = 1e9, strategy: str = "ps_sync") -> Agreement:
    return Agreement(
        strategy=strategy,
        bits_per_s=bits_per_s,
        ratio=ratio,
        low=ratio - 0.01,
        high=ratio + 0.01,
        num_pairs=3,
    )


def test_twice_the_step_time_at_half_the_rate_is_perfect() -> None:
    found = compare_scales(1e9, 2, [0.1, 0.2, 0.4], [0.2, 0.4, 0.84], "allreduce")
    assert (found.ratio, found.low, found.num_pairs) == (1.0, 1.0, 3)
    assert found.high == pytest.approx(1.05)
    assert found.bits_per_s == 5e8
    assert found.holds


@pytest.mark.parametrize(
    ("ratio", "holds"), [(1 + TOLERANCE / 2, True), (0.96, False), (1.05, False)]
)
def test_scales_agree_within_the_tolerance(ratio: float, holds: bool) -> None:
    assert agreement(ratio).holds is holds


@pytest.mark.parametrize("scale", [1, 2, 4])
def test_rates_fall_as_durations_grow(scale: int) -> None:
    for point in points_at(NETWORK, scale, PROFILE).values():
        assert point.network is not None
        assert point.network.bits_per_s == 1e9 / scale
        emulated = point.workload.emulated
        assert emulated is not None
        assert emulated.forward_s == COMPUTE.forward_s * scale
        assert emulated.backward_s == COMPUTE.backward_s * scale


def test_every_host_takes_part() -> None:
    points = points_at(NETWORK, 1, PROFILE)
    assert {point.num_workers + point.num_ps for point in points.values()} == {3}
    assert len({point.experiment_id for point in points.values()}) == 2


def test_the_envelope_is_the_highest_rate_that_held() -> None:
    found = [agreement(0.9), agreement(1.01, 5e8), agreement(0.8, strategy="allreduce")]
    text = render_agreements(found)
    assert "ps_sync: emulation can be trusted within 3% up to 500mbit" in text
    assert "allreduce: emulation cannot be trusted at 1gbit" in text
    assert "0.900 [0.890, 0.910], n=3" in text
