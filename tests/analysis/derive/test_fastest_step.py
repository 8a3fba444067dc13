"""Bounds worked out by hand: gradients of 400 bytes on links of 100 bytes a second."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linprog

from analysis.derive.fastest_step import Bound, bound_of, most_steps_per_s, step_time_s, use_of
from analysis.stats.points import point_table
from ps_allreduce.bounds import Flow
from ps_allreduce.point.accelerators import Distribution, Jitter
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.resources import LayoutKind
from ps_allreduce.point.strategies import (
    AllReduce,
    AnyStrategy,
    AsynchronousServers,
    NoCommunication,
    SynchronousServers,
)
from ps_allreduce.point.wire import Wire, WireType
from ps_allreduce.point.workload import EmulatedCompute, Workload
from ps_allreduce.record.records import LinkRecord, RunRecord, TrafficRecord
from tests.analysis.builders import case_of, links_between, placement_used, run, tasks_on
from tests.fakes import make_experiment, make_host

SIZE = 400
BYTES_PER_S = 100.0
S_OVER_B = SIZE / BYTES_PER_S

FORWARD_S, BACKWARD_S = 0.5, 1.0
WORKLOAD = Workload(
    batch_per_worker=10,
    emulated=EmulatedCompute(forward_s=FORWARD_S, backward_s=BACKWARD_S),
)

SYNC, ASYNC = SynchronousServers, AsynchronousServers


def links(hosts: list[str], slow: str = "") -> tuple[LinkRecord, ...]:
    """Each host sends to the next one; the links of a slow host carry a tenth."""
    return tuple(
        replace(link, bits_per_s=link.bits_per_s / 10)
        if slow in (link.source, link.target)
        else link
        for link in links_between(hosts, 8 * BYTES_PER_S)
    )


def made(
    own: Experiment,
    workers: str,
    servers: str = "",
    loads: tuple[int, ...] = (),
    *,
    slow: str = "",
    rate: float | None = 1.0,
    **changes: Any,
) -> RunRecord:
    """A run with a letter for the host of each worker and each server."""
    places = {f"worker:{i}": host for i, host in enumerate(workers)}
    places |= {f"ps:{i}": host for i, host in enumerate(servers)}
    hosts = list(dict.fromkeys(places.values()))
    settings: dict[str, Any] = {
        "hosts": tuple(make_host(name) for name in hosts),
        "links": links(hosts, slow),
        "tasks": tasks_on(places),
        "placement": placement_used(*loads) if loads else None,
        "gradient_bytes": SIZE,
    }
    return run(own, rate, **(settings | changes))


def served(
    strategy: type[AnyStrategy],
    workers: str,
    servers: str,
    *loads: int,
    slow: str = "",
    **changes: Any,
) -> RunRecord:
    own = make_experiment(
        strategy,
        len(workers),
        num_ps=len(servers),
        layout=LayoutKind.COLOCATED if set(servers) & set(workers) else LayoutKind.DEDICATED,
        **({"workload": WORKLOAD} | changes),
    )
    return made(own, workers, servers, loads, slow=slow)


def reduced(workers: str, **changes: Any) -> RunRecord:
    settings = {"workload": WORKLOAD, "bytes_per_pack": None} | changes
    return made(make_experiment(AllReduce, len(workers), **settings), workers)


def bound(record: RunRecord) -> Bound:
    found = bound_of(record)
    assert found is not None
    return found


HALF = Wire(gradients=WireType.BFLOAT16)


@pytest.mark.parametrize(
    ("record", "seconds"),
    [
        # The server's link carries every worker's gradients in, and values out.
        pytest.param(served(SYNC, "ab", "x", 400), 8, id="one dedicated server"),
        pytest.param(served(SYNC, "ab", "xy", 200, 200), 4, id="two dedicated servers"),
        # Two servers of 200 take 3 x 200 each, a worker 400.
        pytest.param(served(SYNC, "abc", "xy", 200, 200), 6, id="three workers, two servers"),
        pytest.param(served(SYNC, "ab", "wxyz", 100, 100, 100, 100), 4, id="workers' own links"),
        pytest.param(served(SYNC, "ab", "xy", 300, 100), 6, id="unbalanced, hottest server"),
        pytest.param(served(SYNC, "ab", "xx", 200, 200), 8, id="two servers on one host"),
        # Out of each host: gradients of 200 to the other server, values of 200 for its worker.
        pytest.param(served(SYNC, "ab", "ab", 200, 200), 4, id="colocated as a ring of 2"),
        pytest.param(served(SYNC, "abcd", "abcd", 100, 100, 100, 100), 6, id="as a ring of 4"),
        # Out of a: 300 for b's values, 100 of its own gradients; into b the same.
        pytest.param(served(SYNC, "ab", "ab", 300, 100), 4, id="colocated, unbalanced, 2 hosts"),
        # Out of a: 2 x 300 as values, 100 as gradients.
        pytest.param(served(SYNC, "abc", "ab", 300, 100), 7, id="colocated, unbalanced, 3 hosts"),
        pytest.param(served(SYNC, "ab", "a", 400), 4, id="one colocated server"),
        pytest.param(served(SYNC, "aabb", "x", 400), 16, id="two workers per host"),
        pytest.param(
            served(SYNC, "aabb", "x", 400, host_aggregation=True), 8, id="aggregated on hosts"
        ),
        # Values stay float32 and fill the other direction.
        pytest.param(served(SYNC, "ab", "x", 400, wire=HALF), 8, id="16 bits, dedicated"),
        pytest.param(served(SYNC, "ab", "ab", 200, 200, wire=HALF), 3, id="16 bits, colocated"),
        pytest.param(reduced("ab"), 4, id="ring of 2"),
        pytest.param(reduced("abcd"), 6, id="ring of 4"),
        pytest.param(reduced("abcd", wire=HALF), 3, id="ring of 4 in 16 bits"),
        pytest.param(reduced("aabb"), 6, id="ring of 4 on 2 hosts"),
        pytest.param(reduced("abcd", bytes_per_pack=0), 6, id="TensorFlow's packs"),
    ],
)
def test_network_time(record: RunRecord, seconds: float) -> None:
    assert bound(record).network_s == pytest.approx(seconds)
    assert bound(record).step_s == pytest.approx(FORWARD_S + max(BACKWARD_S, seconds))


@pytest.mark.parametrize("workers", [1, 2, 5])
@pytest.mark.parametrize("loads", [(400,), (200, 200), (300, 100), (100, 100, 100, 100)])
def test_dedicated_servers_agree_with_the_closed_formulas(
    workers: int, loads: tuple[int, ...]
) -> None:
    names = "abcde"[:workers], "wxyz"[: len(loads)]
    hottest_s = max(loads) / BYTES_PER_S
    closed = max(workers * hottest_s, S_OVER_B)
    assert bound(served(SYNC, *names, *loads)).network_s == pytest.approx(closed)
    per_worker_step = max(hottest_s, S_OVER_B / workers)
    dealt = served(ASYNC, *names, *loads)
    assert bound(dealt).network_s / workers == pytest.approx(per_worker_step)
    # One worker's step also takes its own forward pass and transfer.
    alone = (FORWARD_S + max(BACKWARD_S, S_OVER_B)) / workers
    assert bound(dealt).step_s / workers == pytest.approx(max(per_worker_step, alone))
    bounded = served(ASYNC, *names, *loads, staleness=3)
    assert bound(bounded).step_s == pytest.approx(bound(dealt).step_s)


def test_workers_that_do_not_wait_leave_more_steps_to_the_one_beside_the_server() -> None:
    # Worker 0 makes a step in 1.5 s without the network, worker 1 in 0.5 + 4 s.
    dealt = served(ASYNC, "ab", "a", 400)
    assert bound(dealt).step_s == pytest.approx(2 / (1 / 1.5 + 1 / 4.5))
    assert bound(served(ASYNC, "ab", "a", 400, staleness=2)).step_s == pytest.approx(4.5)


def test_only_the_last_of_accumulated_backward_passes_overlaps() -> None:
    load = Workload(accumulation=3, emulated=WORKLOAD.emulated)
    assert bound(reduced("ab", workload=load)).step_s == pytest.approx(2 * 1.5 + 0.5 + 4)


SLOW = replace(WORKLOAD, emulated=EmulatedCompute(forward_s=0.5, backward_s=1.0, factors=(1, 3)))


def test_the_slowest_worker_decides_unless_steps_are_dealt() -> None:
    # Alone, worker 1 takes 1.5 + 4 s, its transfer being longer than its backward pass of 3 s.
    assert bound(reduced("ab", workload=SLOW)).step_s == pytest.approx(5.5)
    assert bound(served(SYNC, "ab", "xy", 200, 200, workload=SLOW)).step_s == pytest.approx(5.5)
    # A worker that no point of this size has changes nothing.
    alone = served(ASYNC, "b", "x", 400, workload=SLOW)
    assert bound(alone).step_s == pytest.approx(4.5)
    dealt = bound(served(ASYNC, "ab", "wxyz", 100, 100, 100, 100, workload=SLOW))
    assert dealt.step_s == pytest.approx(2 / (1 / 4.5 + 1 / 5.5))
    bounded = served(ASYNC, "ab", "wxyz", 100, 100, 100, 100, workload=SLOW, staleness=2)
    assert bound(bounded).step_s == pytest.approx(5.5)


def test_the_slowest_worker_of_each_step_decides() -> None:
    jitter = Jitter(distribution=Distribution.GAMMA, variation=0.5)
    compute = EmulatedCompute(forward_s=FORWARD_S, backward_s=BACKWARD_S, jitter=jitter)
    record = reduced("ab", workload=replace(WORKLOAD, emulated=compute))
    assert record.metrics is not None
    measured = record.metrics.warmup_steps + np.arange(record.metrics.measured_steps)
    slowest = np.max([jitter.factors(worker, measured) for worker in (0, 1)], axis=0)
    steps = FORWARD_S * slowest + np.maximum(BACKWARD_S * slowest, S_OVER_B)
    assert bound(record).step_s == pytest.approx(steps.mean())


def test_a_network_faster_than_the_backward_pass_costs_nothing() -> None:
    quick = made(make_experiment(AllReduce, 2, workload=WORKLOAD), "ab", gradient_bytes=40)
    assert bound(quick).step_s == pytest.approx(FORWARD_S + BACKWARD_S)


def test_real_compute_is_taken_from_the_run() -> None:
    # Forward 4 ms and backward 8 ms, as the builders have it.
    record = reduced("ab", workload=Workload(batch_per_worker=10))
    assert bound(record).step_s == pytest.approx(0.004 + 4)


def test_a_slow_host_slows_only_its_own_link() -> None:
    # A slow worker moves 400 bytes at 10 bytes/s; the server 3 x 400 at 100.
    assert bound(served(SYNC, "abc", "x", 400, slow="c")).network_s == pytest.approx(40)
    assert bound(served(SYNC, "abc", "x", 400)).network_s == pytest.approx(12)


def test_background_traffic_leaves_less_of_a_link_in_its_direction() -> None:
    def with_traffic(source: str, target: str) -> RunRecord:
        took = TrafficRecord(source=source, target=target, bits_per_s=8 * 50.0)
        return replace(served(SYNC, "ab", "x", 400), traffic=(took,))

    # Half of what the server receives over, or of what one worker does.
    assert bound(with_traffic("a", "x")).network_s == pytest.approx(16)
    assert bound(with_traffic("x", "a")).network_s == pytest.approx(16)
    assert bound(with_traffic("b", "a")).network_s == pytest.approx(8)
    # It may wait while gradients are sent, and cross in the forward pass.
    alone = bound(served(SYNC, "ab", "x", 400))
    assert alone.step_s > alone.network_s == pytest.approx(8)
    assert bound(with_traffic("a", "x")).step_s == pytest.approx(16)
    assert bound(with_traffic("b", "a")).step_s == alone.step_s
    full = TrafficRecord(source="a", target="x", bits_per_s=8 * BYTES_PER_S)
    assert bound_of(replace(served(SYNC, "ab", "x", 400), traffic=(full,))) is None


def test_the_fraction_is_of_the_step_that_was_reached() -> None:
    record = made(make_experiment(AllReduce, 2, workload=WORKLOAD), "ab", rate=2.0)
    assert step_time_s(record) == pytest.approx(10.0)
    (row,) = case_of([record]).launches.to_dict("records")
    assert row["fraction_of_bound"] == pytest.approx(4.5 / 10)


@pytest.mark.parametrize(
    "record",
    [
        pytest.param(reduced("aa"), id="one host"),
        pytest.param(made(make_experiment(NoCommunication, 2), "ab"), id="nothing is sent"),
        pytest.param(made(make_experiment(SYNC, 2), "ab", "ab"), id="placement unknown"),
        pytest.param(made(make_experiment(SYNC, 2), "ab", "", (200, 200)), id="servers unknown"),
        pytest.param(made(make_experiment(AllReduce, 2), "ab", links=()), id="not measured"),
        pytest.param(
            made(make_experiment(AllReduce, 2), "ab", gradient_bytes=None), id="size unknown"
        ),
        pytest.param(
            made(make_experiment(AllReduce, 2), "ab", rate=None), id="no time of computation"
        ),
    ],
)
def test_without_a_network_that_is_known_there_is_no_bound(record: RunRecord) -> None:
    assert bound_of(record) is None


def test_a_point_averages_over_its_launches() -> None:
    own = make_experiment(AllReduce, 2, workload=WORKLOAD)
    records = [made(own, "ab", rate=rate, repetition=i) for i, rate in enumerate((1.0, 2.0, 4.0))]
    lost = made(own, "ab", rate=None, repetition=3)
    (point,) = point_table(case_of([*records, lost])).to_dict("records")
    assert (point["network_s"], point["bound_s"]) == pytest.approx((4.0, 4.5))
    assert point["bound_step_s"] == pytest.approx((20 + 10 + 5) / 3)
    assert point["fraction"] == pytest.approx(0.45)
    assert point["rate_bound"] == pytest.approx(20 / 4.5)


@given(
    sizes=st.lists(st.integers(1, 100), min_size=1, max_size=5),
    alone=st.lists(st.floats(0.1, 10.0), min_size=5, max_size=5),
    rate=st.floats(1.0, 1000.0),
    faster=st.floats(0.1, 10.0),
)
def test_steps_are_divided_as_well_as_by_a_linear_program(
    sizes: list[int], alone: list[float], rate: float, faster: float
) -> None:
    # Each worker sends so much to one server; links of workers are slower or faster.
    own = [_both_ways("server", f"worker{w}", n) for w, n in enumerate(sizes)]
    rates = {flow.target: (faster * rate, faster * rate) for flows in own for flow in flows}
    rates["server"] = (rate, 2 * rate)
    of_each = alone[: len(sizes)]
    usage = [[n / rate for n in sizes]] + [
        [n / (faster * rate) * (i == w) for i, n in enumerate(sizes)] for w in range(len(sizes))
    ]
    best = linprog(
        [-1.0] * len(sizes),
        A_ub=usage,
        b_ub=[1.0] * len(usage),
        bounds=[(0.0, 1 / seconds) for seconds in of_each],
    )
    assert best.x is not None
    assert most_steps_per_s(own, of_each, rates) == pytest.approx(best.x.sum(), rel=1e-6)


def _both_ways(one: str, other: str, num_bytes: int) -> list[Flow]:
    ends = ((one, other), (other, one))
    return [Flow(source=a, target=b, num_bytes=float(num_bytes)) for a, b in ends]


def test_workers_that_make_more_steps_send_more() -> None:
    """Of two workers, the one beside the server makes three of four steps, and uses no link."""
    for strategy, seconds in ((ASYNC, 2.0), (SYNC, 4.0)):
        record = served(strategy, "ax", "x", 400)
        assert bound(record).network_s == pytest.approx(4.0)
        metrics = record.metrics
        assert metrics is not None
        uneven = replace(record, metrics=replace(metrics, steps_per_worker=(1, 3)))
        assert bound(uneven).network_s == pytest.approx(seconds)
        assert bound(uneven).step_s == bound(record).step_s


def test_what_must_pass_a_link_counts_there_however_fast_its_hosts_are_elsewhere() -> None:
    """The ring sends all its bytes over each link; servers send over it what is theirs."""
    slow = links_between("abc", 8 * BYTES_PER_S)
    slow = (replace(slow[0], bits_per_s=0.8 * BYTES_PER_S), *slow[1:])
    ring, served_ = (
        replace(each, links=slow) for each in (reduced("abc"), served(SYNC, "abc", "b", 400))
    )
    for record, num_bytes in ((ring, 4 / 3 * SIZE), (served_, SIZE)):
        step_s = step_time_s(record)
        assert step_s is not None
        assert use_of(record, [("a", "b")]) == pytest.approx(
            [10 * num_bytes / BYTES_PER_S / step_s]
        )
    assert use_of(ring, [("a", "x")]) == []
