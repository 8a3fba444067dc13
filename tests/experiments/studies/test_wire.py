"""The points that are held against the bound of their links."""

from __future__ import annotations

import pytest

from experiments.studies.wire_study import NO_COMPUTE, STUDY
from ps_allreduce.point.experiment import Experiment
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


def test_an_accelerator_computes_for_as_long_as_the_links_need() -> None:
    (point,) = (p for p in points() if overlaps(p) and p.num_ps)
    emulated = point.workload.emulated
    assert emulated is not None
    assert emulated.backward_s == pytest.approx(2 * emulated.forward_s)
    # A host receives three quarters of 25 MB for its server, and as much for its worker.
    assert emulated.forward_s + emulated.backward_s == pytest.approx(1.5 * 25e6 * 8 / 800e6)
