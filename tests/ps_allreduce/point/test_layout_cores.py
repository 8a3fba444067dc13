"""Cores and GPUs of one host, and of several that are real or share one machine."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
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
    Single,
    SynchronousServers,
)
from tests.examples import fast, spread_experiments
from tests.fakes import make_experiment
from tests.goldens import golden

#: As a scheduler may list them: not in the order of any alphabet, some the beginning of another.
#: Numbers of cores are those that Slurm may bind a step to: they differ, and have gaps.
OFFERED = {"n10": [0, 1, 2, 3], "n1": [8, 9, 10, 11], "n9": [3, 5, 7, 9], "n100": [0, 2, 4, 6]}

ALIKE = dict.fromkeys(OFFERED, range(2))


def reduced(num_workers: int, cores: int = 1, **changes: Any) -> Experiment:
    """All-reduce with a worker for each host."""
    settings = {"spread": Spread(), "resources": Resources(cores_per_worker=cores)}
    return make_experiment(AllReduce, num_workers, **(settings | changes))


def served(num_workers: int, num_ps: int, layout: str = "colocated", **changes: Any) -> Experiment:
    """Servers, on several hosts unless something else is stated."""
    settings = {"spread": Spread(), "layout": LayoutKind(layout), "num_ps": num_ps}
    return make_experiment(SynchronousServers, num_workers, **(settings | changes))


def here(experiment: Experiment) -> Experiment:
    """The same on one host."""
    return replace(experiment, spread=None)


def on_one(cores: int) -> Mapping[str, range]:
    return {"n9": range(cores)}


def with_threads(cores: int, threads: int) -> dict[str, Any]:
    return {"resources": Resources(cores_per_worker=cores, threads_per_worker=threads)}


#: Of two workers with four cores each, but for the server.
SMALLER = served(
    1, 2, "ps_hosts", spread=Spread(ps_per_host=2), resources=Resources(cores_per_worker=4)
)

#: Hosts that are named for servers begin with a c.
PLANS: Mapping[str, tuple[Experiment, Mapping[str, Sequence[int]]]] = {
    "one worker": (here(make_experiment(Single)), on_one(1)),
    "cores that a scheduler granted": (here(reduced(2)), {"n9": [3, 11, 12]}),
    "slices, and threads for each core but one": (
        here(reduced(2, **with_threads(4, 3))),
        on_one(8),
    ),
    "servers and workers on one core": (here(served(2, 2)), on_one(2)),
    "more servers than workers": (here(served(2, 3)), on_one(2)),
    "a core each": (here(served(2, 2, "dedicated")), on_one(4)),
    "a core is left for the server": (here(served(2, 2, **with_threads(2, 1))), on_one(8)),
    "threads on all cores, and a server": (here(served(2, 2, **with_threads(2, 2))), on_one(8)),
    "two servers beside one worker": (here(served(2, 3, **with_threads(2, 1))), on_one(8)),
    "more threads than cores": (here(served(2, 2, "dedicated", **with_threads(1, 2))), on_one(8)),
    "too few cores": (here(served(2, 2)), on_one(1)),
    "too few cores for dedicated servers": (here(served(2, 2, "dedicated")), on_one(3)),
    "too few cores for slices": (here(served(2, 2, **with_threads(4, 4))), on_one(4)),
    "the first host of several": (here(reduced(2)), OFFERED),
    "a worker for each host": (reduced(3), OFFERED),
    "two workers for each host": (reduced(3, 2, spread=Spread(workers_per_host=2)), OFFERED),
    "colocated servers": (served(2, 3), OFFERED),
    "dedicated servers": (served(2, 2, "dedicated"), OFFERED),
    "two servers for each host": (
        served(2, 3, "dedicated", spread=Spread(ps_per_host=2)),
        OFFERED,
    ),
    "a lonely chief": (
        served(
            1,
            2,
            "dedicated",
            spread=Spread(ps_per_host=2, coordinator=Coordinator.OWN_HOST),
            resources=Resources(cores_per_worker=2),
        ),
        OFFERED,
    ),
    "a chief beside the first server": (
        served(2, 1, "dedicated", spread=Spread(coordinator=Coordinator.FIRST_SERVER)),
        OFFERED,
    ),
    "more colocated servers than a host may have": (
        served(2, 5, spread=Spread(ps_per_host=2)),
        OFFERED,
    ),
    "as many colocated servers as a host may have": (
        served(2, 4, spread=Spread(ps_per_host=2)),
        OFFERED,
    ),
    "too few hosts": (served(2, 2, "dedicated"), {"n10": [0], "n1": [0], "n9": [0]}),
    "no host": (served(2, 2, "dedicated"), {}),
    "a host with too few cores": (reduced(2, 2), OFFERED | {"n1": [8]}),
    **{
        f"a host for servers with {cores} cores": (SMALLER, {"w": range(4), "c": range(cores)})
        for cores in (8, 5, 2, 1)
    },
    "cores that are numbered alike": (reduced(4, 2), ALIKE),
    "a server and a worker on equal cores of two hosts": (
        served(1, 1, "dedicated", spread=Spread(ps_per_host=1)),
        ALIKE,
    ),
    "a server beside each worker on its only core": (served(2, 2), ALIKE),
}


def placed_on(experiment: Experiment, hosts: Iterable[str]) -> Mapping[TaskId, str]:
    of_workers = [host for host in hosts if not host.startswith("c")]
    return place_tasks(experiment, of_workers, [host for host in hosts if host.startswith("c")])


def told(experiment: Experiment, offered: Mapping[str, Sequence[int]]) -> Iterator[str]:
    """Every task with its host and its cores, or a refusal."""
    try:
        placed = placed_on(experiment, offered)
        needed = cores_needed(experiment, placed, offered)
        planned = plan_cores(experiment, placed, offered)
    except UserError as error:
        yield f"Error: {error}"
        return
    yield from lines_of(placed, planned)
    yield f"needed: {', '.join(f'{count} of {host}' for host, count in needed.items())}"


def lines_of(placed: Mapping[TaskId, str], planned: CorePlan) -> Iterator[str]:
    for task, host in placed.items():
        yield f"{task} on {host}: {' '.join(map(str, planned.cores[task]))}"
    yield f"{planned.total} cores{', which are fewer than tasks use' * planned.oversubscribed}"


#: Emulated hosts on one machine with so many cores.
SHARED = {
    "emulated hosts with cores of their own": (reduced(2, 2), 5),
    "emulated hosts that share all cores": (reduced(4), 3),
}


def test_tasks_have_a_host_and_cores() -> None:
    plans = {title: [*told(*asked)] for title, asked in PLANS.items()}
    for title, (own, cores) in SHARED.items():
        placed = placed_on(own, OFFERED)
        plans[title] = [*lines_of(placed, share_machine(own, placed, range(cores)))]
    texts = ["\n".join([f"# {title}", *lines, ""]) for title, lines in plans.items()]
    golden.check({"sentences/layouts.txt": "\n".join(texts)})


def on_host(experiment: Experiment, offered: Sequence[int]) -> CorePlan:
    """The cores of a single host."""
    return plan_cores(experiment, place_tasks(experiment, ["n9"]), {"n9": offered})


def test_every_strategy_has_the_same_cores_unless_servers_are_dedicated() -> None:
    several = [strategy for strategy in STRATEGIES.values() if strategy is not Single]
    assert {on_host(make_experiment(strategy, 2), range(8)).total for strategy in several} == {2}
    experiment = make_experiment(layout=LayoutKind.DEDICATED, num_ps=3)
    assert on_host(experiment, range(8)).total == 5


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


def test_workers_share_the_gpus_of_their_host_and_others_see_none() -> None:
    on_gpus: dict[str, Any] = {"resources": Resources(device=Device.GPU)}
    experiment = served(3, 1, spread=Spread(workers_per_host=2), **on_gpus)
    placed = place_tasks(experiment, ["n10", "n1"])
    offered = {"n10": ["GPU-a", "GPU-b", "GPU-c", "GPU-d"], "n1": ["0", "1"]}
    assert {str(task): text for task, text in plan_gpus(experiment, placed, offered).items()} == {
        "ps:0": "",
        "worker:0": "GPU-a,GPU-b",
        "worker:1": "GPU-c,GPU-d",
        "worker:2": "0,1",
        "chief:0": "",
    }
    on_processors = served(3, 1, spread=Spread(workers_per_host=2))
    assert set(plan_gpus(on_processors, placed, offered).values()) == {""}
    alone = served(1, 1, "dedicated", **on_gpus)  # hosts of servers need none
    placed = place_tasks(alone, ["n10", "n1"])
    seen = plan_gpus(alone, placed, {"n10": ["0"], "n1": []})
    assert seen[TaskId(TaskType.WORKER, 0)] == "0"
    with pytest.raises(UserError, match=r"host n10 has 1 GPUs for 2 workers\. Ask for fewer"):
        plan_gpus(experiment, place_tasks(experiment, ["n10", "n1"]), offered | {"n10": ["0"]})
