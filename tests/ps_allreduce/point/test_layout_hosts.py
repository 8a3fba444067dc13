"""Which tasks there are: every one of them on exactly one host, in the order that was given."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from ps_allreduce.cluster import TaskId, TaskType
from ps_allreduce.errors import UserError
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.layout import (
    cluster_of,
    drivers_of,
    num_hosts,
    num_ps_hosts,
    place_tasks,
    tasks_of,
    too_few_hosts,
)
from ps_allreduce.point.resources import Coordinator, LayoutKind, Spread
from ps_allreduce.point.strategies import (
    STRATEGIES,
    AllReduce,
    AnyStrategy,
    AsynchronousServers,
)
from tests.examples import fast, spread_experiments
from tests.fakes import make_experiment


def test_servers_come_with_a_chief_that_drives() -> None:
    experiment = make_experiment(AsynchronousServers, 2)
    names = " ".join(str(task) for task in tasks_of(experiment))
    assert names == "ps:0 ps:1 worker:0 worker:1 chief:0"
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


def test_a_host_that_is_listed_twice_is_refused() -> None:
    with pytest.raises(UserError, match="host n1 is listed more than once"):
        place_tasks(make_experiment(AllReduce, 2, spread=Spread()), ["n10", "n1", "n1"])


MANY = tuple(f"n{number}" for number in (*range(20, 0, -1), *range(100, 120)))

#: Hosts that are named for servers, whose names stand before those of some others.
FOR_SERVERS = tuple(f"c{number}" for number in range(12, 0, -1))


@fast
@given(spread_experiments())
def test_every_task_has_one_host_by_its_position_whatever_its_name(experiment: Experiment) -> None:
    placed = place_tasks(experiment, MANY, FOR_SERVERS)
    assert tuple(placed) == tasks_of(experiment)
    for_servers = num_ps_hosts(experiment)
    used = {*MANY[: num_hosts(experiment) - for_servers], *FOR_SERVERS[:for_servers]}
    assert set(placed.values()) == used
    every = [*MANY, *FOR_SERVERS]
    other = [f"{number:02d}" for number in range(len(every))]
    renamed = dict(zip(every, other, strict=True))
    again = place_tasks(experiment, other[: len(MANY)], other[len(MANY) :])
    assert again == {t: renamed[host] for t, host in placed.items()}


@fast
@given(spread_experiments())
def test_hosts_named_for_servers_hold_all_servers_of_that_layout_and_nothing_else(
    experiment: Experiment,
) -> None:
    placed = place_tasks(experiment, MANY, FOR_SERVERS)
    there = {task for task, host in placed.items() if host in FOR_SERVERS}
    if num_ps_hosts(experiment):
        servers = {task for task in placed if task.type is TaskType.PS}
        first_server = (experiment.spread or Spread()).coordinator is Coordinator.FIRST_SERVER
        assert there - servers == ({TaskId(TaskType.CHIEF, 0)} if first_server else set())
        assert servers <= there
    else:
        assert not there


def test_too_few_hosts_named_for_servers_are_counted() -> None:
    named = make_experiment(num_ps=3, layout=LayoutKind.PS_HOSTS, spread=Spread())
    assert "3 such hosts are needed but there are 2" in too_few_hosts(named, 9, 2)
    assert too_few_hosts(named, 2, 3) == ""
    assert "2 hosts are needed but there are 1" in too_few_hosts(named, 1, 3)
    # On one machine there are none.
    here = make_experiment(layout=LayoutKind.PS_HOSTS)
    assert "such hosts are needed" in too_few_hosts(here, 1)


def counts(placed: Mapping[TaskId, str], kind: TaskType) -> Counter[str]:
    """How many tasks of a kind every host has."""
    return Counter(host for task, host in placed.items() if task.type is kind)


@fast
@given(spread_experiments())
def test_no_host_has_more_workers_or_servers_than_it_may(experiment: Experiment) -> None:
    placed = place_tasks(experiment, MANY, FOR_SERVERS)
    assert experiment.spread is not None
    workers, servers = counts(placed, TaskType.WORKER), counts(placed, TaskType.PS)
    most = experiment.spread.workers_per_host
    assert max(workers.values()) <= most
    assert sum(count < most for count in workers.values()) <= 1
    assert len(workers) == math.ceil(experiment.num_workers / most)
    if experiment.spread.ps_per_host is not None and servers:
        assert max(servers.values()) <= experiment.spread.ps_per_host


@fast
@given(spread_experiments())
def test_dedicated_servers_share_no_host_with_workers_and_colocated_ones_share_all_evenly(
    experiment: Experiment,
) -> None:
    placed = place_tasks(experiment, MANY, FOR_SERVERS)
    workers, servers = counts(placed, TaskType.WORKER), counts(placed, TaskType.PS)
    settings = experiment.strategy.servers
    if settings is not None and settings.layout.is_apart:
        assert not workers.keys() & servers.keys()
    else:
        assert servers.keys() <= workers.keys()
        loads = [servers[host] for host in workers]
        assert max(loads) - min(loads) <= 1


@fast
@given(spread_experiments())
def test_the_chief_of_its_own_host_shares_it_with_nobody(experiment: Experiment) -> None:
    assert experiment.spread is not None
    assume(experiment.strategy.uses_servers)
    placed = place_tasks(experiment, MANY, FOR_SERVERS)
    own = placed[TaskId(TaskType.CHIEF, 0)]
    beside = [task for task, host in placed.items() if host == own]
    assert (len(beside) == 1) == (experiment.spread.coordinator is Coordinator.OWN_HOST)


@fast
@given(spread_experiments(), st.integers(0, 40))
def test_there_are_enough_hosts_or_it_is_refused(experiment: Experiment, granted: int) -> None:
    for_servers = num_ps_hosts(experiment)
    if granted >= num_hosts(experiment) - for_servers:
        place_tasks(experiment, MANY[:granted], FOR_SERVERS[:for_servers])
        assert too_few_hosts(experiment, granted, for_servers) == ""
    else:
        refusal = "hosts are needed but there are"
        assert refusal in too_few_hosts(experiment, granted, for_servers)
        with pytest.raises(UserError, match=refusal):
            place_tasks(experiment, MANY[:granted], FOR_SERVERS)
