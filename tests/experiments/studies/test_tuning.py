"""The tuning sweep changes one setting of the exchange at a time."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest

from experiments.studies.tuning_sweep import tuning_sweep
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.spread import Spread
from ps_allreduce.point.strategies import Strategy
from ps_allreduce.point.wire import STOCK, Wire, WireType
from tests.experiments.studies.test_studies import request


def _differences(point: Experiment, usual: Experiment) -> list[str]:
    names = [f.name for f in fields(Experiment) if f.name not in ("wire", "workload")]
    found = [name for name in names if getattr(point, name) != getattr(usual, name)]
    for part in ("wire", "workload"):
        mine, its = getattr(point, part), getattr(usual, part)
        found += [f.name for f in fields(mine) if getattr(mine, f.name) != getattr(its, f.name)]
    return found


def _points(strategy: Strategy, **changes: object) -> list[Experiment]:
    points = tuning_sweep(replace(request((1, 2)), **changes))  # type: ignore[arg-type]
    return [point for point in points if point.strategy is strategy]


def test_every_point_differs_in_one_setting_from_the_usual_one() -> None:
    for strategy in (Strategy.PS_ASYNC, Strategy.PS_SYNC, Strategy.ALLREDUCE):
        usual, *others = _points(strategy)
        found = [_differences(point, usual) for point in others if point.wire != STOCK]
        assert all(len(names) == 1 for names in found), found
        seen = {name for (name,) in found}
        assert seen >= {"group_bytes", "cut_bytes", "in_flight", "gradients"}
        assert seen >= {"accumulation", "precision"}


def test_settings_of_dealing_are_tried_where_steps_are_dealt() -> None:
    usual, *others = _points(Strategy.PS_ASYNC)
    seen = {name for point in others for name in _differences(point, usual)}
    assert seen >= {"staleness", "steps_per_dispatch"}


@pytest.mark.parametrize("dealing", [{"staleness": 8}, {"steps_per_dispatch": 8}])
def test_what_the_settings_that_were_asked_for_leave_no_room_for_is_left_out(
    dealing: dict[str, int],
) -> None:
    usual, *others = _points(Strategy.PS_ASYNC, dealing=dealing)
    assert {name: getattr(usual, name) for name in dealing} == dealing
    assert all(p.staleness is None or p.staleness >= p.steps_per_dispatch for p in others)
    assert len({p.steps_per_dispatch for p in others}) > 1


def test_aggregation_is_tried_only_where_workers_share_a_host() -> None:
    points = _points(Strategy.PS_SYNC, spread=Spread(workers_per_host=1))
    assert not any(point.wire.host_aggregation for point in points)


def test_tensorflows_own_way_is_among_them() -> None:
    assert [p.bytes_per_pack for p in _points(Strategy.ALLREDUCE) if p.bytes_per_pack is not None]
    assert STOCK in [point.wire for point in _points(Strategy.PS_SYNC)]


def test_workers_that_share_a_host_are_tried_together() -> None:
    points = _points(Strategy.PS_SYNC, spread=Spread(workers_per_host=2))
    assert any(point.wire.host_aggregation for point in points)


def test_formats_are_tried_beside_the_one_that_was_asked_for() -> None:
    points = _points(Strategy.PS_SYNC, wire=Wire(gradients=WireType.FLOAT16))
    assert {point.wire.gradients for point in points if point.wire != STOCK} == set(WireType)
