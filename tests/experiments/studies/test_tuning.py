"""The tuning sweep changes one setting of the exchange at a time."""

from __future__ import annotations

from typing import Any

import pytest

from experiments.studies.catalogue import STUDIES
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.resources import Spread
from ps_allreduce.point.strategies import (
    AnyStrategy,
    AsynchronousServers,
    SynchronousServers,
)
from ps_allreduce.point.strategies.stated import StrategySettings
from ps_allreduce.point.wire import UNBUCKETED, WireType
from tests.experiments.studies.scopes import make_scope


def points_of(strategy: type[AnyStrategy], **changes: Any) -> list[Experiment]:
    points = STUDIES["tuning-sweep"].points(make_scope((1, 2), **changes))
    return [point for point in points if isinstance(point.strategy, strategy)]


@pytest.mark.parametrize(
    "settings", [StrategySettings(staleness=8), StrategySettings(steps_per_dispatch=8)]
)
def test_what_stated_settings_leave_no_room_for_is_left_out(settings: StrategySettings) -> None:
    points = points_of(AsynchronousServers, settings=settings)
    default, *others = [p.strategy for p in points if isinstance(p.strategy, AsynchronousServers)]
    stated = {name: getattr(settings, name) for name in settings.stated}
    assert {name: getattr(default, name) for name in stated} == stated
    assert all(s.staleness is None or s.staleness >= s.steps_per_dispatch for s in others)
    assert len({s.steps_per_dispatch for s in others}) > 1


@pytest.mark.parametrize(
    ("workers_per_host", "tried"), [(1, False), pytest.param(2, True, id="they share a host")]
)
def test_aggregation_is_tried_where_workers_share_a_host(
    workers_per_host: int, tried: bool
) -> None:
    points = points_of(SynchronousServers, spread=Spread(workers_per_host=workers_per_host))
    assert any(point.strategy.host_aggregation for point in points) is tried


def test_formats_are_tried_beside_the_stated_one() -> None:
    settings = StrategySettings(gradients=WireType.FLOAT16)
    wires = [point.strategy.wire for point in points_of(SynchronousServers, settings=settings)]
    assert {wire.gradients for wire in wires if wire and wire != UNBUCKETED} == set(WireType)
