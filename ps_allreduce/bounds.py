"""The least time that a network leaves a step, from the bytes that hosts send each other.

Decides what a strategy has to send in a step of every worker (`demands`), and how much of that can
hide behind computation.  Pure.  Which rates links have, and what the figures are compared with, is
the business of `experiments` and `analysis`.

Sources: ring, Patarasuk and Yuan, Bandwidth optimal all-reduce algorithms for clusters of
workstations, J. Parallel Distrib. Comput. 69, 2009; servers, Jiang et al., A unified architecture
for accelerating distributed DNN training in heterogeneous GPU/CPU clusters, OSDI 2020, section 2;
rows, Kim et al., Parallax: Sparsity-aware Data Parallel Training of Deep Neural Networks, EuroSys
2019, section 3.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial

from ps_allreduce.cluster import TaskId, TaskType
from ps_allreduce.exchange.stacking import NUMBER_BYTES
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.layout import place_by_number
from ps_allreduce.point.wire import WireType
from ps_allreduce.record.variables import RowsAsked

#: Bytes per second that every host's link has for gradients, out and in.
Rates = Mapping[str, tuple[float, float]]


class RowPhase(StrEnum):
    """When rows of tables travel: before their worker computes, and after."""

    FETCHED = "fetched"
    SENT = "sent"


@dataclass(frozen=True, slots=True, kw_only=True)
class Flow:
    """What one host sends another one in a step, or itself: from task to task.

    Attributes:
        num_bytes: payload.
        worker: in whose step; None where workers send together.
        rows: of rows of tables, when; None of all else.
    """

    source: str
    target: str
    num_bytes: float
    worker: int | None = None
    rows: RowPhase | None = None

    @property
    def crosses(self) -> bool:
        """It takes a link; all else costs only processors."""
        return self.source != self.target


def demands(
    experiment: Experiment,
    host_of: Mapping[str, str],
    bytes_per_server: Sequence[int],
    gradient_bytes: int,
    rows: RowsAsked | None = None,
) -> tuple[Flow, ...]:
    """What hosts send each other in one step of every worker, and servers and workers of one host.

    Args:
        host_of: the host of every task, by the task's name, for instance `worker:0`.
        bytes_per_server: in float32 of each server, of what is exchanged whole; empty without
            servers.
        gradient_bytes: of one worker, in float32, rows of tables among them.
        rows: that are exchanged alone; None where there are none.
    """
    flows: list[Flow] = []
    strategy = experiment.strategy
    if strategy.uses_servers:
        flows += _to_servers(experiment, host_of, bytes_per_server)
        flows += [] if rows is None else _rows_to_servers(experiment, host_of, rows)
    if strategy.uses_collective:
        gathered = None if strategy.uses_servers else rows
        flows += _around(experiment, host_of, _whole_bytes(gradient_bytes, rows), gathered)
    return tuple(flows)


def _whole_bytes(gradient_bytes: int, rows: RowsAsked | None) -> float:
    """Of the gradients of a worker those that are exchanged whole, in float32."""
    return gradient_bytes - (0.0 if rows is None else rows.unique * rows.row_bytes)


def _rows_to_servers(
    experiment: Experiment, host_of: Mapping[str, str], rows: RowsAsked
) -> Iterator[Flow]:
    """Every worker asks each server for its rows by their numbers, and sends gradients of them.

    The numbers are there already when the gradients come: TensorFlow sends a tensor once.
    """
    for index, asked in enumerate(rows.over(experiment.num_ps)):
        server = host_of[str(TaskId(TaskType.PS, index))]
        pushed = asked * (rows.row_bytes + NUMBER_BYTES)
        for worker, host in _senders(experiment, host_of):
            pulled, flow = asked * rows.row_bytes, partial(Flow, worker=worker)
            yield flow(source=host, target=server, num_bytes=pushed, rows=RowPhase.SENT)
            yield flow(source=server, target=host, num_bytes=pulled, rows=RowPhase.FETCHED)


def _to_servers(
    experiment: Experiment, host_of: Mapping[str, str], bytes_per_server: Sequence[int]
) -> Iterator[Flow]:
    """Every sender pushes each server's part and pulls it back."""
    for index, pulled in enumerate(bytes_per_server):
        server = host_of[str(TaskId(TaskType.PS, index))]
        for worker, host in _senders(experiment, host_of):
            pushed = pulled * push_share(experiment)
            yield Flow(source=host, target=server, num_bytes=pushed, worker=worker)
            yield Flow(source=server, target=host, num_bytes=pulled, worker=worker)


def _around(
    experiment: Experiment,
    host_of: Mapping[str, str],
    whole: float,
    rows: RowsAsked | None,
) -> Iterator[Flow]:
    """The ring enters and leaves every host of workers once; rows of all others pass each of them.

    Every worker's rows are filled up to those of the longest.

    Args:
        whole: bytes of what is averaged whole, in float32.
        rows: that are gathered.
    """
    senders = [host for _, host in _senders(experiment, host_of)]
    hosts = list(dict.fromkeys(senders))
    averaged = ring_share(len(senders)) * whole * push_share(experiment)
    crossing: dict[RowPhase | None, float] = {None: averaged}
    if rows is not None:
        gathered = (len(senders) - 1) * rows.longest * (rows.row_bytes + NUMBER_BYTES)
        crossing[RowPhase.SENT] = gathered
    if len(hosts) > 1:
        for host, following in zip(hosts, [*hosts[1:], hosts[0]], strict=True):
            for phase, size in crossing.items():
                yield Flow(source=host, target=following, num_bytes=size, rows=phase)


def ring_share(num_workers: int) -> float:
    """Bytes that a ring sends over every host's link, over those of all gradients."""
    return 2 * (num_workers - 1) / num_workers


def _senders(experiment: Experiment, host_of: Mapping[str, str]) -> list[tuple[int | None, str]]:
    """Every worker and its host; with aggregation on hosts each host once."""
    hosts = [host_of[str(TaskId(TaskType.WORKER, i))] for i in range(experiment.num_workers)]
    if experiment.strategy.host_aggregation:
        return [(None, host) for host in dict.fromkeys(hosts)]
    return list(enumerate(hosts))


def push_share(experiment: Experiment) -> float:
    """Bytes of a gradient on the wire over those in float32."""
    wire = experiment.strategy.wire
    return 1.0 if wire is None or wire.gradients is WireType.FLOAT32 else 0.5


def link_bytes(flows: Iterable[Flow]) -> dict[str, tuple[float, float]]:
    """Bytes that every host sends and receives over its link, of those that do."""
    both: dict[str, tuple[float, float]] = {}
    for flow in (each for each in flows if each.crosses):
        sent, received = both.get(flow.source, (0.0, 0.0))
        both[flow.source] = sent + flow.num_bytes, received
        sent, received = both.get(flow.target, (0.0, 0.0))
        both[flow.target] = sent, received + flow.num_bytes
    return both


def network_time_s(flows: Iterable[Flow], rates: Rates) -> float:
    """Seconds until the busiest link has carried its bytes, both directions at once."""
    return max(
        (
            size / rate
            for host, sizes in link_bytes(flows).items()
            for size, rate in zip(sizes, rates[host], strict=True)
        ),
        default=0.0,
    )


def rows_s(flows: Iterable[Flow], rates: Rates) -> float:
    """Seconds of a step that rows take and no computation hides, of workers that begin together.

    A worker's rows are there before its forward pass begins, and their gradients are known when
    its backward pass ends.  So what it fetches and sends takes its turn; the last one to get its
    rows still has to send, and nobody sends before the first one has them.
    """
    of_rows: dict[int | None, list[Flow]] = {}
    for flow in flows:
        if flow.rows is not None and flow.crosses:
            of_rows.setdefault(flow.worker, []).append(flow)
    if not of_rows:
        return 0.0
    each = [_phases_s(own, rates) for own in of_rows.values()]
    fetched, sent = [first for first, _ in each], [second for _, second in each]
    all_fetched, all_sent = _phases_s([f for own in of_rows.values() for f in own], rates)
    alone = max(first + second for first, second in each)
    return max(alone, all_fetched + min(sent), min(fetched) + all_sent)


def in_turn_s(flows: Sequence[Flow], rates: Rates) -> float:
    """Seconds of the busiest link if all workers fetch rows, then send them, and all else apart.

    No bound: one worker may send while another one still fetches.
    """
    whole = network_time_s([flow for flow in flows if flow.rows is None], rates)
    return whole + sum(_phases_s(flows, rates))


def _phases_s(flows: Sequence[Flow], rates: Rates) -> tuple[float, float]:
    """Seconds of the busiest link in which rows are fetched, and in which they are sent."""
    fetched, sent = (
        network_time_s([flow for flow in flows if flow.rows is phase], rates) for phase in RowPhase
    )
    return fetched, sent


def nominal_network_s(
    experiment: Experiment,
    gradient_bytes: int,
    bits_per_s: float,
    rows: RowsAsked | None = None,
) -> float:
    """Time on the busiest link at a stated rate, servers loaded equally, on hosts enough.

    What the stated background traffic takes of a link is not there for gradients.  Bytes and rows
    are as in `demands`.
    """
    num_ps, network = experiment.num_ps, experiment.network
    host_of = {str(task): host for task, host in place_by_number(experiment).items()}
    of_each = int(_whole_bytes(gradient_bytes, rows) // max(num_ps, 1))
    shares = [of_each] * num_ps if experiment.strategy.places_variables else []
    rates = {}
    for host in host_of.values():
        out, into = network.traffic_at(int(host)) if network else (0.0, 0.0)
        rates[host] = (bits_per_s - out) / 8, (bits_per_s - into) / 8
    return network_time_s(demands(experiment, host_of, shares, gradient_bytes, rows), rates)


def step_bound_s(
    forward_s: float, backward_s: float, network_s: float, rows_s: float = 0.0
) -> float:
    """Seconds of a step whose communication overlaps perfectly with its own backward pass.

    All but that of its rows, which overlaps with neither pass (`rows_s`).

    Of one worker.  Where workers differ, the slowest decides for synchronous strategies: a step of
    all workers cannot end before the slowest worker's gradients are there.
    """
    return forward_s + max(backward_s + rows_s, network_s)
