"""The points that are held against the bound of their links."""

from __future__ import annotations

from dataclasses import replace

import pytest

from analysis.suite.wire_targets import Sending, computed_s, sending_of, target_of
from experiments.suite.wire_points import STUDY, wire_profile
from ps_allreduce.errors import UserError
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.layout import num_hosts
from ps_allreduce.point.measurement import Measurement
from ps_allreduce.point.network import EmulatedNetwork
from ps_allreduce.point.resources import Spread
from tests.experiments.studies.scopes import make_scope

NETWORK = EmulatedNetwork(num_hosts=6, bits_per_s=1e9)


def grid(bits_per_s: float | None = 1e9) -> list[Experiment]:
    network = replace(NETWORK, bits_per_s=bits_per_s)
    scope = make_scope(workers=(2,), launcher="emulated", spread=Spread(), network=network)
    points = list(STUDY.points(scope))
    assert len({point.experiment_id for point in points}) == len(points)
    return points


def test_every_strategy_meets_every_shape() -> None:
    counts: dict[str, int] = {}
    for point in grid():
        purpose = f"{point.strategy}, overlap" if computed_s(point) else str(point.strategy)
        sending = sending_of(point)
        purpose += "" if sending is Sending.BUCKETS else f", {sending}"
        counts[purpose] = counts.get(purpose, 0) + 1
        assert (target_of(point) is None) == (sending is not Sending.BUCKETS)
    communicating = {"allreduce": 8, "ps_sync": 24, "ps_async": 24}
    overlapping = {"allreduce, overlap": 4, "ps_sync, overlap": 8}
    plain = {"allreduce, one pack": 2, "ps_sync, unbucketed": 2, "ps_async, unbucketed": 2}
    shipped = {f"{name}, as shipped": 2 for name in ("stock_allreduce", "stock_ps")}
    shipped |= {f"{name}, fused optimizer": 2 for name in ("stock_allreduce", "stock_ps")}
    between = {f"{name}, no limit": 2 for name in ("allreduce", "ps_async")}
    assert counts == communicating | overlapping | plain | shipped | between


@pytest.mark.parametrize("bits_per_s", [25e9, None])
def test_fast_links_have_no_targets_but_servers_that_share_a_host(bits_per_s: float | None) -> None:
    points = grid(bits_per_s)
    assert len(points) == 50
    assert not any(target_of(point) for point in points)
    assert {p.num_ps for p in points if p.spread == Spread(ps_per_host=2)} == {2}
    assert sum(sending_of(point) is not Sending.BUCKETS for point in points) == 18


def test_points_fit_on_six_hosts_and_take_a_few_seconds() -> None:
    for point in grid():
        assert num_hosts(point) <= 6
        assert isinstance(point.measurement, Measurement)
        assert 4 <= point.measurement.measured_steps <= 10
    assert 300 < wire_profile(NETWORK).deadline_s < 400
    assert wire_profile(replace(NETWORK, bits_per_s=1e8)).deadline_s > 2000


def test_an_accelerator_computes_for_as_long_as_the_links_need() -> None:
    point = next(p for p in grid() if computed_s(p) and p.num_ps == 1 and p.num_workers == 2)
    emulated = point.workload.emulated
    assert emulated is not None
    assert emulated.backward_s == pytest.approx(2 * emulated.forward_s)
    assert computed_s(point) == pytest.approx(0.4)


def test_links_of_unknown_rate_are_refused() -> None:
    with pytest.raises(UserError, match="on an emulated network only"):
        list(STUDY.points(make_scope(workers=(2,))))
