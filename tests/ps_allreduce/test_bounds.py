"""Bytes on every link, and the least time that they leave a step."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from ps_allreduce.bounds import (
    Flow,
    demands,
    link_bytes,
    network_time_s,
    nominal_network_s,
    rows_s,
    step_bound_s,
)
from ps_allreduce.point.network import EmulatedNetwork, Traffic
from ps_allreduce.point.resources import Spread
from ps_allreduce.point.strategies import AllReduce, Hybrid, Single, SynchronousServers
from ps_allreduce.point.wire import Wire, WireType
from ps_allreduce.record.variables import RowsAsked
from tests.fakes import make_experiment

HALVED = Wire(gradients=WireType.BFLOAT16)


def crossing(*asked: Any) -> dict[str, tuple[float, float]]:
    return link_bytes(demands(*asked))


def served(num_workers: int, num_ps: int, **changes: Any) -> Any:
    return make_experiment(SynchronousServers, num_workers, num_ps=num_ps, **changes)


def reduced(num_workers: int, **changes: Any) -> Any:
    return make_experiment(AllReduce, num_workers, **({"wire": Wire()} | changes))


def on_hosts(**hosts: str) -> dict[str, str]:
    """`worker0="a"` puts worker:0 on host a."""
    return {f"{task[:-1]}:{task[-1]}": host for task, host in hosts.items()}


APART = on_hosts(worker0="a", worker1="b", ps0="c")

BESIDE = on_hosts(worker0="a", worker1="b", ps0="a", ps1="b")

SHARED = on_hosts(worker0="a", worker1="a", worker2="b", worker3="b", ps0="c")


def test_a_server_apart_carries_the_gradients_of_all_workers() -> None:
    crossings = crossing(served(2, 1), APART, [100], 100)
    assert crossings == {"a": (100, 100), "b": (100, 100), "c": (200, 200)}


def test_what_stays_on_a_host_crosses_no_link() -> None:
    crossings = crossing(served(2, 2), BESIDE, [30, 70], 100)
    assert crossings == {"a": (70 + 30, 30 + 70), "b": (30 + 70, 70 + 30)}
    alone = dict.fromkeys(BESIDE, "a")
    assert crossing(served(2, 2), alone, [30, 70], 100) == {}
    assert crossing(reduced(2), alone, (), 1000) == {}


def test_sixteen_bits_halve_what_is_pushed_only() -> None:
    crossings = crossing(served(2, 1, wire=HALVED), APART, [100], 100)
    assert crossings == {"a": (50, 100), "b": (50, 100), "c": (200, 100)}


def test_aggregation_sends_once_per_host() -> None:
    assert crossing(served(4, 1), SHARED, [100], 100)["c"] == (400, 400)
    once = served(4, 1, host_aggregation=True)
    assert crossing(once, SHARED, [100], 100)["c"] == (200, 200)


@pytest.mark.parametrize(("workers", "share"), [(2, 1.0), (4, 1.5)])
def test_a_ring_loads_every_link_alike(workers: int, share: float) -> None:
    hosts = {f"worker:{index}": f"host{index}" for index in range(workers)}
    crossings = crossing(reduced(workers), hosts, (), 1000)
    assert crossings == dict.fromkeys(hosts.values(), (1000 * share, 1000 * share))
    halved = crossing(reduced(workers, wire=HALVED), hosts, (), 1000)
    assert halved["host0"] == (500 * share, 500 * share)


def test_who_sends_nothing_has_no_bound() -> None:
    assert demands(make_experiment(Single), {"worker:0": "a"}, (), 1000) == ()
    assert network_time_s((), {}) == 0


def test_a_flow_belongs_to_the_worker_whose_step_it_is() -> None:
    flows = demands(served(2, 1), APART, [100], 100)
    assert [flow.worker for flow in flows] == [0, 0, 1, 1]
    once = demands(served(4, 1, host_aggregation=True), SHARED, [100], 100)
    assert {flow.worker for flow in once} == {None}


def test_the_busiest_direction_of_the_busiest_link_counts() -> None:
    sizes = (("c", "a", 3e6), ("a", "c", 1e6), ("d", "b", 5e6), ("b", "d", 2e6))
    flows = [Flow(source=s, target=t, num_bytes=size) for s, t, size in sizes]
    rates = dict.fromkeys("abcd", (125e6, 125e6))
    assert network_time_s(flows, rates) == pytest.approx(0.04)
    # Background traffic leaves a's receiving direction a fifth of the rate.
    assert network_time_s(flows, rates | {"a": (125e6, 25e6)}) == pytest.approx(0.12)


@pytest.mark.parametrize(("source", "target"), [(1, 0), (1, 2), (2, 1)])
def test_stated_traffic_is_not_there_for_gradients(source: int, target: int) -> None:
    free = EmulatedNetwork(num_hosts=3, bits_per_s=1e9)
    busy = replace(free, traffic=(Traffic(bits_per_s=5e8, source=source, target=target),))
    times = [
        nominal_network_s(replace(reduced(2), network=network, spread=Spread()), 10**8, 1e9)
        for network in (free, busy)
    ]
    assert times == pytest.approx([0.8, 1.6])


def test_communication_hides_behind_the_backward_pass_only() -> None:
    assert step_bound_s(1.0, 2.0, 1.5) == 3.0
    assert step_bound_s(1.0, 2.0, 2.5) == 3.5


ROWS = RowsAsked(
    row_bytes=100, asked=50.0, unique=20.0, longest=32.0, union=30.0, per_server=(12.0, 8.0)
)


def test_rows_go_to_the_servers_that_hold_them_and_come_back_without_numbers() -> None:
    hosts = on_hosts(worker0="a", ps0="b", ps1="c")
    crossed = crossing(served(1, 2), hosts, (1000, 0), 3000, ROWS)
    pushed = {"b": 12 * 108, "c": 8 * 108}
    assert crossed["b"] == (1000 + 1200, 1000 + pushed["b"])
    assert crossed["c"] == (800, pushed["c"])
    assert crossed["a"] == (1000 + sum(pushed.values()), 1000 + 2000)


def test_on_another_number_of_servers_rows_are_expected_evenly() -> None:
    assert ROWS.over(4) == (5.0, 5.0, 5.0, 5.0)


def test_every_workers_rows_pass_all_others_filled_up_to_the_longest() -> None:
    hosts = on_hosts(worker0="a", worker1="b", worker2="c")
    crossed = crossing(reduced(3), hosts, (), 3000 + 20 * 100, ROWS)
    assert crossed["a"][0] == pytest.approx(4 / 3 * 3000 + 2 * 32 * 108)


@pytest.mark.parametrize(
    ("strategy", "on_servers"), [(SynchronousServers, (1500, 1500)), (AllReduce, ()), (Hybrid, ())]
)
def test_rows_are_no_part_of_what_a_nominal_step_exchanges_whole(
    strategy: Any, on_servers: tuple[int, ...]
) -> None:
    own = {} if strategy is AllReduce else {"num_ps": 2}
    point = make_experiment(strategy, 2, spread=Spread(), **own)
    hosts = on_hosts(worker0="a", worker1="b", ps0="a", ps1="b")
    measured = demands(point, hosts, on_servers, 3000 + 20 * 100, ROWS)
    at_8_bits = dict.fromkeys("ab", (1.0, 1.0))
    assert nominal_network_s(point, 5000, 8.0, ROWS) == network_time_s(measured, at_8_bits)


def test_a_hybrid_has_rows_on_servers_and_the_rest_in_the_ring() -> None:
    hosts = on_hosts(worker0="a", worker1="b", ps0="b", ps1="c")
    mixed = make_experiment(Hybrid, 2, num_ps=2)
    crossed = crossing(mixed, hosts, (), 3000 + 20 * 100, ROWS)
    # The first worker's rows are all elsewhere; the second one's first shard is on its own host.
    assert crossed["a"] == (3000 + 20 * 108, 3000 + 20 * 100)
    assert crossed["b"] == (3000 + 8 * 108 + 12 * 100, 3000 + 8 * 100 + 12 * 108)


def test_no_computation_of_a_worker_hides_its_rows() -> None:
    hosts = on_hosts(worker0="a", ps0="b", ps1="c")
    flows = demands(served(1, 2), hosts, (1000, 0), 3000, ROWS)
    rates = dict.fromkeys("abc", (1000.0, 1000.0))
    # Numbers and gradients go out when rows have come in; whole variables are no rows.
    assert rows_s(flows, rates) == pytest.approx(20 * 108 / 1000 + 20 * 100 / 1000)
    assert rows_s(demands(served(1, 2), hosts, (1000, 0), 3000), rates) == 0.0
    # Of two workers the first one has its rows after 2 s, and 4.32 s later the server has all.
    both = demands(served(2, 1), APART, (1000,), 3000, ROWS)
    assert rows_s(both, rates) == pytest.approx(20 * 100 / 1000 + 2 * 20 * 108 / 1000)
    assert step_bound_s(1.0, 2.0, 3.0, rows_s=4.0) == 7.0


def test_rows_are_counted_by_worker_batch_and_server() -> None:
    first = [np.array([0, 1, 2, 4]), np.array([6])]
    second = [np.array([0, 3]), np.array([5, 7, 9])]
    rows = RowsAsked.of([first, second], 6.0, 100, num_servers=2)
    assert (rows.unique, rows.longest, rows.union) == (2.5, 32.0, 4.5)
    assert rows.per_server == (1.25, 1.25)
    assert rows.hot_shard == 1.0
    assert RowsAsked.of([first], 6.0, 100).hot_shard is None
