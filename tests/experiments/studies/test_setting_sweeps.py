"""The tuning sweep and the ladder change one setting of the exchange at a time."""

from __future__ import annotations

from typing import Any

import pytest

from experiments.studies.catalogue import STUDIES
from ps_allreduce.errors import UserError
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.models.weights import TensorSet
from ps_allreduce.point.placement import VariableSpec
from ps_allreduce.point.resources import Spread
from ps_allreduce.point.strategies import AnyStrategy, AsynchronousServers, SynchronousServers
from ps_allreduce.point.strategies.stated import StrategySettings
from ps_allreduce.point.strategies.stock import LADDERS
from ps_allreduce.point.wire import UNBUCKETED, WireType
from ps_allreduce.point.workload import EmulatedCompute, Workload
from tests.experiments.studies.scopes import make_scope
from tests.fakes import TWO_LAYERS


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


BATCH_NORM = (*TWO_LAYERS, VariableSpec(name="mean", shape=(8,), dtype="float32", trainable=False))


def rungs(name: str, **changes: Any) -> list[Experiment]:
    """The points of a side, in the order of its rungs."""
    scope = make_scope((1, 2), **{"brief": True, "describe": lambda _: BATCH_NORM, **changes})
    points = list(STUDIES["ladder"].points(scope))
    return [point for rung in LADDERS[name] for point in points if rung.holds(point)]


@pytest.mark.parametrize(
    "changes",
    [
        {"describe": lambda _: TWO_LAYERS},
        {
            "workloads": (
                Workload(
                    model=TensorSet(count=2, num_bytes=800),
                    emulated=EmulatedCompute(forward_s=0.01, backward_s=0.01),
                ),
            )
        },
    ],
    ids=["no batch norm", "nothing is computed"],
)
@pytest.mark.parametrize("name", LADDERS)
def test_a_rung_that_changes_nothing_is_left_out(name: str, changes: dict[str, Any]) -> None:
    points = rungs(name, **changes)
    names = [rung.name for rung in LADDERS[name] if any(rung.holds(point) for point in points)]
    assert len(points) == 5
    assert "statistics on the worker" not in names


@pytest.mark.parametrize(
    "stated", [StrategySettings(in_flight=8), StrategySettings(gradients=WireType.FLOAT16)]
)
def test_settings_that_rungs_differ_in_cannot_be_stated(stated: StrategySettings) -> None:
    with pytest.raises(UserError, match=f"rungs of ladder differ in {stated.stated[0]}: leave"):
        rungs("all-reduce", settings=stated)


def test_other_settings_hold_for_every_rung_that_has_them() -> None:
    points = rungs("parameter servers", settings=StrategySettings(steps_per_dispatch=8, num_ps=1))
    assert {p.strategy.columns()["steps_per_dispatch"] for p in points} == {8}
    assert {point.num_ps for point in points} == {1}
