"""Which tasks there are, and which cores of a single host each of them gets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from ps_allreduce.cluster import TaskId, TaskType
from ps_allreduce.errors import UserError
from ps_allreduce.point.experiment import Experiment, Resources
from ps_allreduce.point.layout import (
    CorePlan,
    cluster_of,
    drivers_of,
    place_tasks,
    plan_cores,
    tasks_of,
)
from ps_allreduce.point.spread import LayoutKind
from ps_allreduce.point.strategies import TRAITS, Strategy
from tests.fakes import make_experiment


def plan(experiment: Experiment, offered: Sequence[int]) -> CorePlan:
    """The cores of a single host."""
    return plan_cores(experiment, place_tasks(experiment, ["n9"]), {"n9": offered})


def cores(
    available: int, strategy: Strategy = Strategy.PS_SYNC, num_workers: int = 2, **changes: Any
) -> dict[str, tuple[int, ...]]:
    dealt = plan(make_experiment(strategy, num_workers, **changes), range(available)).cores
    return {str(task): mine for task, mine in dealt.items()}


def is_oversubscribed(available: int, **changes: Any) -> bool:
    return plan(make_experiment(**changes), range(available)).oversubscribed


def test_servers_come_with_a_chief_that_drives() -> None:
    experiment = make_experiment(Strategy.PS_ASYNC, 2)
    assert [str(task) for task in tasks_of(experiment)] == [
        "ps:0",
        "ps:1",
        "worker:0",
        "worker:1",
        "chief:0",
    ]
    assert [str(task) for task in drivers_of(experiment)] == ["chief:0"]


@pytest.mark.parametrize(
    "strategy", [strategy for strategy in Strategy if not TRAITS[strategy].uses_servers]
)
def test_without_servers_every_worker_drives_itself(strategy: Strategy) -> None:
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


def test_one_core_serves_one_worker() -> None:
    assert cores(1, Strategy.SINGLE) == {"worker:0": (0,)}


def test_two_cores_are_shared_by_colocated_servers_and_workers() -> None:
    assert cores(2) == {
        "ps:0": (0,),
        "ps:1": (1,),
        "worker:0": (0,),
        "worker:1": (1,),
        "chief:0": (0, 1),
    }


def test_more_colocated_servers_than_workers_take_their_turn() -> None:
    shared = cores(2, num_ps=3)
    assert [shared[f"ps:{i}"] for i in range(3)] == [(0,), (1,), (0,)]


def test_four_cores_hold_two_dedicated_servers() -> None:
    dedicated = cores(4, layout=LayoutKind.DEDICATED)
    assert dedicated == {
        "worker:0": (0,),
        "worker:1": (1,),
        "ps:0": (2,),
        "ps:1": (3,),
        "chief:0": (0, 1, 2, 3),
    }


def test_eight_cores_are_dealt_in_slices() -> None:
    resources = Resources(cores_per_worker=4, threads_per_worker=3)
    assert cores(8, resources=resources)["worker:1"] == (4, 5, 6, 7)
    assert cores(8, Strategy.ALLREDUCE, resources=resources) == {
        "worker:0": (0, 1, 2, 3),
        "worker:1": (4, 5, 6, 7),
    }


def test_cores_that_a_scheduler_granted_are_used_as_they_are_numbered() -> None:
    dealt = plan(make_experiment(Strategy.ALLREDUCE), [3, 11, 12])
    assert list(dealt.cores.values()) == [(3,), (11,)]


def test_every_strategy_has_the_same_cores_when_servers_are_colocated() -> None:
    totals = {
        plan(make_experiment(strategy, 2), range(8)).total
        for strategy in Strategy
        if strategy is not Strategy.SINGLE
    }
    assert totals == {2}


def test_dedicated_servers_are_counted() -> None:
    experiment = make_experiment(layout=LayoutKind.DEDICATED, num_ps=3)
    assert plan(experiment, range(8)).total == 5


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        pytest.param({}, True, id="server and worker on one core"),
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
    assert is_oversubscribed(8, **changes) is expected


def test_a_worker_alone_on_its_core_is_not_oversubscribed() -> None:
    assert not is_oversubscribed(1, strategy=Strategy.SINGLE)
    assert not is_oversubscribed(2, strategy=Strategy.ALLREDUCE)


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
