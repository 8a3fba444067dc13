"""The ladder leads from TensorFlow as it ships to the suite's defaults, one change at a time."""

from __future__ import annotations

from typing import Any

import pytest

from experiments.studies.catalogue import STUDIES
from ps_allreduce.errors import UserError
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.models.weights import TensorSet
from ps_allreduce.point.placement import VariableSpec
from ps_allreduce.point.strategies.stated import StrategySettings
from ps_allreduce.point.strategies.stock import LADDERS
from ps_allreduce.point.wire import WireType
from ps_allreduce.point.workload import EmulatedCompute, Workload
from tests.experiments.studies.scopes import make_scope
from tests.fakes import TWO_LAYERS

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
