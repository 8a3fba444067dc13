"""The points that are held against the bound of their links."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from experiments.studies.wire import NO_COMPUTE, STUDY
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


def is_plain(point: Experiment) -> bool:
    """It is sent in the suite's buckets, without a limit of its own."""
    strategy = point.strategy
    wire = strategy.wire
    return not strategy.as_shipped and wire is not None and wire.in_flight > 0


def overlaps(point: Experiment) -> bool:
    emulated = point.workload.emulated
    return emulated is not None and emulated != NO_COMPUTE


def test_every_strategy_meets_every_shape() -> None:
    counts = Counter((str(point.strategy), is_plain(point), overlaps(point)) for point in grid())
    assert counts == {
        ("allreduce", True, False): 8,
        ("allreduce", True, True): 4,
        ("allreduce", False, False): 4,
        ("ps_sync", True, False): 24,
        ("ps_sync", True, True): 8,
        ("ps_sync", False, False): 2,
        ("ps_async", True, False): 24,
        ("ps_async", False, False): 4,
        ("stock_allreduce", False, False): 4,
        ("stock_ps", False, False): 4,
    }


@pytest.mark.parametrize("bits_per_s", [25e9, None])
def test_on_fast_links_servers_share_a_host_as_well(bits_per_s: float | None) -> None:
    points = grid(bits_per_s)
    assert len(points) == 50
    assert {p.num_ps for p in points if p.spread == Spread(ps_per_host=2)} == {2}
    assert sum(not is_plain(point) for point in points) == 18


def test_points_fit_on_six_hosts_and_take_a_few_seconds() -> None:
    for point in grid():
        assert num_hosts(point) <= 6
        assert isinstance(point.measurement, Measurement)
        assert 4 <= point.measurement.measured_steps <= 10


def test_an_accelerator_computes_for_as_long_as_the_links_need() -> None:
    point = next(p for p in grid() if overlaps(p) and p.num_ps == 1 and p.num_workers == 2)
    emulated = point.workload.emulated
    assert emulated is not None
    assert emulated.backward_s == pytest.approx(2 * emulated.forward_s)
    assert emulated.forward_s + emulated.backward_s == pytest.approx(0.4)


def test_links_of_unknown_rate_are_refused() -> None:
    with pytest.raises(UserError, match="links of a known rate"):
        list(STUDY.points(make_scope(workers=(2,))))
