"""Cores and GPUs of one host, and of several that are real or share one machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ps_allreduce.cluster import TaskId, TaskType
from ps_allreduce.errors import UserError
from ps_allreduce.point.cores import CorePlan, cores_needed, plan_cores, plan_gpus, share_machine
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.layout import place_tasks
from ps_allreduce.point.resources import Coordinator, Device, LayoutKind, Resources, Spread
from ps_allreduce.point.strategies import (
    STRATEGIES,
    AllReduce,
    AnyStrategy,
    Single,
    SynchronousServers,
)
from tests.examples import fast, spread_experiments
from tests.fakes import make_experiment


def on_host(experiment: Experiment, offered: Sequence[int]) -> CorePlan:
    """The cores of a single host."""
    return plan_cores(experiment, place_tasks(experiment, ["n9"]), {"n9": offered})


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
    dealt = on_host(make_experiment(strategy, 2, **changes), range(available)).cores
    assert {str(task): cores for task, cores in dealt.items()} == expected


def test_cores_that_a_scheduler_granted_are_used_as_they_are_numbered() -> None:
    dealt = on_host(make_experiment(AllReduce), [3, 11, 12])
    assert list(dealt.cores.values()) == [(3,), (11,)]


def test_every_strategy_has_the_same_cores_unless_servers_are_dedicated() -> None:
    several = [strategy for strategy in STRATEGIES.values() if strategy is not Single]
    assert {on_host(make_experiment(strategy, 2), range(8)).total for strategy in several} == {2}
    experiment = make_experiment(layout=LayoutKind.DEDICATED, num_ps=3)
    assert on_host(experiment, range(8)).total == 5


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
    assert on_host(make_experiment(**changes), range(8)).oversubscribed is expected


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
        on_host(make_experiment(**changes), range(available))
    assert needed in str(caught.value)
    assert "Ask for fewer workers or servers" in str(caught.value)


HOSTS = ("n10", "n1", "n9", "n100")

#: What Slurm may bind a step to: numbers that differ from host to host, with gaps.
OFFERED = {"n10": [0, 1, 2, 3], "n1": [8, 9, 10, 11], "n9": [3, 5, 7, 9], "n100": [0, 2, 4, 6]}


def plan(
    experiment: Experiment, offered: Mapping[str, Sequence[int]] = OFFERED
) -> dict[str, tuple[int, ...]]:
    placed = place_tasks(experiment, HOSTS)
    return {str(t): c for t, c in plan_cores(experiment, placed, offered).cores.items()}


def reduced(num_workers: int, **changes: Any) -> Experiment:
    return make_experiment(AllReduce, num_workers, **({"spread": Spread()} | changes))


def test_every_worker_gets_cores_of_its_own_host_as_they_are_numbered_there() -> None:
    assert plan(reduced(3)) == {"worker:0": (0,), "worker:1": (8,), "worker:2": (3,)}
    two = Resources(cores_per_worker=2)
    spread = Spread(workers_per_host=2)
    assert plan(reduced(3, resources=two, spread=spread)) == {
        "worker:0": (0, 1),
        "worker:1": (2, 3),
        "worker:2": (8, 9),
    }


def test_colocated_servers_share_the_slices_of_their_own_host() -> None:
    assert plan(make_experiment(num_ps=3, spread=Spread())) == {
        "ps:0": (0,),
        "ps:1": (8,),
        "ps:2": (0,),
        "worker:0": (0,),
        "worker:1": (8,),
        "chief:0": (0,),
    }


def test_dedicated_servers_and_a_lonely_chief_get_a_workers_share() -> None:
    experiment = make_experiment(
        num_workers=1,
        layout=LayoutKind.DEDICATED,
        resources=Resources(cores_per_worker=2),
        spread=Spread(ps_per_host=2, coordinator=Coordinator.OWN_HOST),
    )
    assert cores_needed(experiment, place_tasks(experiment, HOSTS)) == {"n1": 4, "n10": 2, "n9": 2}
    assert plan(experiment) == {
        "worker:0": (0, 1),
        "ps:0": (8, 9),
        "ps:1": (10, 11),
        "chief:0": (3, 5),
    }


@pytest.mark.parametrize(
    ("cores", "dealt"),
    [(8, [(0, 1, 2, 3), (4, 5, 6, 7)]), (5, [(0, 1), (2, 3)]), (2, [(0,), (1,)])],
)
def test_a_smaller_host_that_is_named_for_servers_is_shared_among_them(
    cores: int, dealt: list[tuple[int, ...]]
) -> None:
    experiment = make_experiment(
        num_workers=1,
        num_ps=2,
        layout=LayoutKind.PS_HOSTS,
        resources=Resources(cores_per_worker=4),
        spread=Spread(ps_per_host=2),
    )
    placed = place_tasks(experiment, ["w"], ["c"])
    offered = {"w": range(4), "c": range(cores)}
    found = plan_cores(experiment, placed, offered)
    assert [found.cores[TaskId(TaskType.PS, index)] for index in range(2)] == dealt
    assert cores_needed(experiment, placed, offered) == {"w": 4, "c": 2 * len(dealt[0])}
    with pytest.raises(UserError, match="host c offers 1"):
        plan_cores(experiment, placed, offered | {"c": range(1)})


def test_cores_of_hosts_that_are_numbered_alike_are_counted_apart() -> None:
    experiment = reduced(4, resources=Resources(cores_per_worker=2))
    offered = dict.fromkeys(HOSTS, (0, 1))
    placed = place_tasks(experiment, HOSTS)
    dealt = plan_cores(experiment, placed, offered)
    assert (dealt.total, dealt.oversubscribed) == (8, False)


def test_tasks_on_equal_cores_of_different_hosts_do_not_share_them() -> None:
    experiment = make_experiment(num_workers=1, num_ps=1, layout=LayoutKind.DEDICATED)
    apart = make_experiment(
        num_workers=1, num_ps=1, layout=LayoutKind.DEDICATED, spread=Spread(ps_per_host=1)
    )
    offered = dict.fromkeys(HOSTS, (0, 1))
    assert not plan_cores(apart, place_tasks(apart, HOSTS), offered).oversubscribed
    assert not plan_cores(experiment, place_tasks(experiment, HOSTS), offered).oversubscribed
    together = make_experiment(num_workers=2, num_ps=2, spread=Spread())
    assert plan_cores(together, place_tasks(together, HOSTS), offered).oversubscribed


def test_a_host_with_too_few_cores_is_named() -> None:
    offered = OFFERED | {"n1": [8]}
    with pytest.raises(UserError, match="1 x 2 cores are needed but host n1 offers 1"):
        plan(reduced(2, resources=Resources(cores_per_worker=2)), offered)


#: Enough for four workers, four servers and a chief.
NINE = tuple(f"h{index}" for index in range(9))

#: Hosts that are named for servers.
FOUR = tuple(f"c{index}" for index in range(4))


@fast
@given(spread_experiments(4), st.permutations(range(30)))
def test_workers_of_a_host_share_no_core_and_get_what_was_asked_for(
    experiment: Experiment, numbers: list[int]
) -> None:
    placed = place_tasks(experiment, NINE, FOUR)
    offered = {host: numbers[index:] for index, host in enumerate((*NINE, *FOUR))}
    dealt = plan_cores(experiment, placed, offered).cores
    assert set(dealt) == set(placed)
    for host in set(placed.values()):
        workers = [dealt[t] for t in placed if placed[t] == host and t.type is TaskType.WORKER]
        flat = [core for mine in workers for core in mine]
        assert len(set(flat)) == len(flat)
        assert {len(mine) for mine in workers} <= {experiment.resources.cores_per_worker}
        here = {core for task, mine in dealt.items() if placed[task] == host for core in mine}
        assert here == set(offered[host][: cores_needed(experiment, placed)[host]])


def share(experiment: Experiment, cores: int) -> CorePlan:
    return share_machine(experiment, place_tasks(experiment, HOSTS), range(cores))


def test_emulated_hosts_get_cores_of_their_own_where_there_are_enough() -> None:
    dealt = share(reduced(2, resources=Resources(cores_per_worker=2)), 5)
    assert list(dealt.cores.values()) == [(0, 1), (2, 3)]
    assert (dealt.total, dealt.oversubscribed) == (4, False)


def test_emulated_hosts_share_all_cores_where_there_are_too_few() -> None:
    dealt = share(reduced(4), 3)
    assert set(dealt.cores.values()) == {(0, 1, 2)}
    assert (len(dealt.cores), dealt.total, dealt.oversubscribed) == (4, 3, True)


@fast
@given(spread_experiments(4), st.integers(1, 20))
def test_no_core_is_in_two_emulated_hosts_unless_all_are(
    experiment: Experiment, machine: int
) -> None:
    placed = place_tasks(experiment, NINE, FOUR)
    dealt = share_machine(experiment, placed, range(machine))
    by_host: dict[str, set[int]] = {}
    for task, mine in dealt.cores.items():
        by_host.setdefault(placed[task], set()).update(mine)
    if sum(cores_needed(experiment, placed).values()) <= machine:
        assert sum(map(len, by_host.values())) == len(set().union(*by_host.values()))
    else:
        assert all(mine == set(range(machine)) for mine in by_host.values())
        assert dealt.oversubscribed


ON_GPUS = Resources(device=Device.GPU)


def gpus(experiment: Experiment, offered: Mapping[str, Sequence[str]]) -> dict[str, str]:
    placed = place_tasks(experiment, HOSTS)
    return {str(t): text for t, text in plan_gpus(experiment, placed, offered).items()}


def test_on_processors_no_task_sees_a_gpu() -> None:
    assert set(gpus(make_experiment(), {"n10": ["0", "1"]}).values()) == {""}


def test_workers_share_the_gpus_of_their_host_and_others_see_none() -> None:
    experiment = make_experiment(
        num_workers=3, num_ps=1, resources=ON_GPUS, spread=Spread(workers_per_host=2)
    )
    offered = {"n10": ["GPU-a", "GPU-b", "GPU-c", "GPU-d"], "n1": ["0", "1"]}
    assert gpus(experiment, offered) == {
        "ps:0": "",
        "worker:0": "GPU-a,GPU-b",
        "worker:1": "GPU-c,GPU-d",
        "worker:2": "0,1",
        "chief:0": "",
    }


def test_hosts_of_servers_need_no_gpu() -> None:
    experiment = make_experiment(
        num_workers=1, num_ps=1, layout=LayoutKind.DEDICATED, resources=ON_GPUS, spread=Spread()
    )
    assert gpus(experiment, {"n10": ["0"], "n1": []})["worker:0"] == "0"


def test_a_host_with_too_few_gpus_is_named() -> None:
    experiment = reduced(2, resources=ON_GPUS, spread=Spread(workers_per_host=2))
    with pytest.raises(UserError, match=r"host n10 has 1 GPUs for 2 workers\. Ask for fewer"):
        gpus(experiment, {"n10": ["0"]})
