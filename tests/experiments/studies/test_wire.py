"""The points that are held against the bound of their links."""

from __future__ import annotations

from collections import Counter

import pytest

from experiments.studies.wire_study import CELLS, NO_COMPUTE, RATES, STUDY
from ps_allreduce.errors import UserError
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.layout import num_hosts
from ps_allreduce.point.measurement import Measurement
from ps_allreduce.point.network import EmulatedNetwork
from ps_allreduce.point.resources import Spread
from tests.experiments.studies.scopes import make_scope

NETWORK = EmulatedNetwork(num_hosts=8, bits_per_s=None)


def points(workers: tuple[int, ...] = (1, 2, 4, 8)) -> list[Experiment]:
    scope = make_scope(workers=workers, launcher="emulated", spread=Spread(), network=NETWORK)
    return list(STUDY.points(scope))


def overlaps(point: Experiment) -> bool:
    emulated = point.workload.emulated
    return emulated is not None and emulated != NO_COMPUTE


def test_every_strategy_is_in_every_cell_once() -> None:
    made = points()
    assert len({point.experiment_id for point in made}) == len(made)
    assert len(CELLS) == 8
    counts = Counter((str(point.strategy), overlaps(point)) for point in made)
    assert counts == {
        **dict.fromkeys([(each, False) for each in ("ps_sync", "ps_async", "stock_ps")], 8),
        **dict.fromkeys([(each, False) for each in ("allreduce", "horovod")], len(RATES)),
        ("stock_allreduce", False): len(RATES),
        **dict.fromkeys([(each, True) for each in ("allreduce", "ps_sync")], 1),
    }
    assert {point.num_workers for point in points((2, 3))} == {2}


def test_points_fit_on_the_hosts_and_state_their_links() -> None:
    for point in points():
        assert num_hosts(point) <= NETWORK.num_hosts
        assert isinstance(point.measurement, Measurement)
        assert 4 <= point.measurement.measured_steps <= 25
        assert point.network is not None
        assert point.network.bits_per_s in RATES.values()


def test_an_accelerator_computes_for_as_long_as_the_links_need() -> None:
    (point,) = (p for p in points() if overlaps(p) and p.num_ps)
    emulated = point.workload.emulated
    assert emulated is not None
    assert emulated.backward_s == pytest.approx(2 * emulated.forward_s)
    # A host receives three quarters of 25 MB for its server, and as much for its worker.
    assert emulated.forward_s + emulated.backward_s == pytest.approx(1.5 * 25e6 * 8 / 800e6)


def test_hosts_without_emulated_links_are_refused() -> None:
    with pytest.raises(UserError, match="rates of emulated links"):
        list(STUDY.points(make_scope(workers=(2,))))
