"""Which tasks there are, and which cores of a single host each of them gets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from ps_allreduce.cluster import TaskId, TaskType
from ps_allreduce.errors import UserError
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.layout import (
    CorePlan,
    cluster_of,
    drivers_of,
    place_tasks,
    plan_cores,
    tasks_of,
)
from ps_allreduce.point.resources import Resources
from ps_allreduce.point.spread import LayoutKind
from ps_allreduce.point.strategies import (
    STRATEGIES,
    AllReduce,
    AnyStrategy,
    AsynchronousServers,
    Single,
    SynchronousServers,
)
from tests.fakes import make_experiment


def plan(experiment: Experiment, offered: Sequence[int]) -> CorePlan:
    """The cores of a single host."""
    return plan_cores(experiment, place_tasks(experiment, ["n9"]), {"n9": offered})


def test_servers_come_with_a_chief_that_drives() -> None:
    experiment = make_experiment(AsynchronousServers, 2)
    assert [str(task) for task in tasks_of(experiment)] == [
        "ps:0",
        "ps:1",
        "worker:0",
        "worker:1",
        "chief:0",
    ]
    assert [str(task) for task in drivers_of(experiment)] == ["chief:0"]


@pytest.mark.parametrize(
    "strategy", [each for each in STRATEGIES.values() if not each.uses_servers]
)
def test_without_servers_every_worker_drives_itself(strategy: type[AnyStrategy]) -> None:
    experiment = make_experiment(strategy, 2)
    assert drivers_of(experiment) == tasks_of(experiment)
    assert len(tasks_of(experiment)) == experiment.num_workers


def test_the_cluster_keeps_the_order_of_indices() -> None:
    tasks = tasks_of(make_experiment())
    cluster = cluster_of(tasks, {task: f"h:{n + 1}" for n, task in enumerate(tasks)})
    assert cluster.as_dict() == {
        "ps": ["h:1", "h:2"],
        "worker": ["h:3", "h:4"],
        "chief": ["h:5"],
    }
    assert cluster.address(TaskId(TaskType.WORKER, 1)) == "h:4"


TWO_APART = {"worker:0": (0,), "worker:1": (1,)}

FOURS = Resources(cores_per_worker=4, threads_per_worker=3)


@pytest.mark.parametrize(
    ("available", "strategy", "changes", "expected"),
    [
        pytest.param(1, Single, {}, {"worker:0": (0,)}, id="one worker"),
        pytest.param(
            2,
            SynchronousServers,
            {},
            TWO_APART | {"ps:0": (0,), "ps:1": (1,), "chief:0": (0, 1)},
            id="colocated servers share the cores of workers",
        ),
        pytest.param(
            2,
            SynchronousServers,
            {"num_ps": 3},
            TWO_APART | {"ps:0": (0,), "ps:1": (1,), "ps:2": (0,), "chief:0": (0, 1)},
            id="more servers than workers take their turn",
        ),
        pytest.param(
            4,
            SynchronousServers,
            {"layout": LayoutKind.DEDICATED},
            TWO_APART | {"ps:0": (2,), "ps:1": (3,), "chief:0": (0, 1, 2, 3)},
            id="dedicated servers have cores of their own",
        ),
        pytest.param(
            8,
            AllReduce,
            {"resources": FOURS},
            {"worker:0": (0, 1, 2, 3), "worker:1": (4, 5, 6, 7)},
            id="slices",
        ),
    ],
)
def test_cores_are_dealt(
    available: int,
    strategy: type[AnyStrategy],
    changes: dict[str, Any],
    expected: dict[str, tuple[int, ...]],
) -> None:
    dealt = plan(make_experiment(strategy, 2, **changes), range(available)).cores
    assert {str(task): cores for task, cores in dealt.items()} == expected


def test_cores_that_a_scheduler_granted_are_used_as_they_are_numbered() -> None:
    dealt = plan(make_experiment(AllReduce), [3, 11, 12])
    assert list(dealt.cores.values()) == [(3,), (11,)]


def test_every_strategy_has_the_same_cores_unless_servers_are_dedicated() -> None:
    several = [strategy for strategy in STRATEGIES.values() if strategy is not Single]
    assert {plan(make_experiment(strategy, 2), range(8)).total for strategy in several} == {2}
    experiment = make_experiment(layout=LayoutKind.DEDICATED, num_ps=3)
    assert plan(experiment, range(8)).total == 5


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        pytest.param({}, True, id="server and worker on one core"),
        pytest.param({"strategy": AllReduce}, False, id="a worker alone on its core"),
        pytest.param({"layout": LayoutKind.DEDICATED}, False, id="a core each"),
        pytest.param(
            {"resources": Resources(cores_per_worker=2, threads_per_worker=1)},
            False,
            id="a core is left for the server",
        ),
        pytest.param(
            {"resources": Resources(cores_per_worker=2, threads_per_worker=2)},
            True,
            id="threads on all cores, and a server",
        ),
        pytest.param(
            {"num_ps": 3, "resources": Resources(cores_per_worker=2, threads_per_worker=1)},
            True,
            id="two servers beside one worker",
        ),
        pytest.param(
            {"layout": LayoutKind.DEDICATED, "resources": Resources(threads_per_worker=2)},
            True,
            id="more threads than cores",
        ),
    ],
)
def test_tasks_with_fewer_cores_than_they_use_are_oversubscribed(
    changes: dict[str, Any], expected: bool
) -> None:
    assert plan(make_experiment(**changes), range(8)).oversubscribed is expected


@pytest.mark.parametrize(
    ("available", "changes", "needed"),
    [
        (1, {}, "2 x 1 cores are needed but host n9 offers 1"),
        (3, {"layout": LayoutKind.DEDICATED}, "4 x 1 cores are needed but host n9 offers 3"),
        (4, {"resources": Resources(cores_per_worker=4)}, "2 x 4 cores are needed"),
    ],
)
def test_too_few_cores_are_refused_with_a_way_out(
    available: int, changes: dict[str, Any], needed: str
) -> None:
    with pytest.raises(UserError) as caught:
        plan(make_experiment(**changes), range(available))
    assert needed in str(caught.value)
    assert "Ask for fewer workers or servers" in str(caught.value)
