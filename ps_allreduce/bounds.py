"""The least time that a network leaves a step, from the bytes that cross every host's link.

Decides how many bytes a strategy has to send for one step of every worker, and how much of that can
hide behind computation.  Pure.  Which rates links have, and what the figures are compared with, is
the business of `experiments` and `analysis`.

Sources: ring, Patarasuk and Yuan, Bandwidth optimal all-reduce algorithms for clusters of
workstations, J. Parallel Distrib. Comput. 69, 2009; servers, Jiang et al., A unified architecture
for accelerating distributed DNN training in heterogeneous GPU/CPU clusters, OSDI 2020, section 2.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from ps_allreduce.cluster import TaskId, TaskType
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.layout import place_by_number
from ps_allreduce.point.wire import WireType

#: Bytes that a host sends and receives over its link.
Crossing = tuple[float, float]


def link_bytes(
    experiment: Experiment,
    host_of: Mapping[str, str],
    bytes_per_server: Sequence[int],
    gradient_bytes: int,
) -> dict[str, Crossing]:
    """Bytes that every host sends and receives in one step of every worker.

    Nothing crosses a link between tasks of one host.

    Args:
        host_of: the host of every task, by the task's name, for instance `worker:0`.
        bytes_per_server: trainable bytes in float32 of each server; empty without servers.
        gradient_bytes: of one worker, in float32.
    """
    hosts = dict.fromkeys(host_of.values(), (0.0, 0.0))
    if experiment.strategy.uses_servers:
        return _of_servers(experiment, host_of, bytes_per_server, hosts)
    if experiment.strategy.uses_collective:
        return hosts | _of_ring(experiment, host_of, gradient_bytes)
    return hosts


def _of_servers(
    experiment: Experiment,
    host_of: Mapping[str, str],
    bytes_per_server: Sequence[int],
    hosts: Mapping[str, Crossing],
) -> dict[str, Crossing]:
    """Every sender pushes each server's part and pulls it back."""
    sent, received = dict.fromkeys(hosts, 0.0), dict.fromkeys(hosts, 0.0)
    for index, pulled in enumerate(bytes_per_server):
        pushed = pulled * _push_share(experiment)
        server = host_of[str(TaskId(TaskType.PS, index))]
        for worker in _senders(experiment, host_of):
            if worker != server:
                sent[worker] += pushed
                received[server] += pushed
                sent[server] += pulled
                received[worker] += pulled
    return {host: (sent[host], received[host]) for host in hosts}


def _of_ring(
    experiment: Experiment, host_of: Mapping[str, str], gradient_bytes: int
) -> dict[str, Crossing]:
    """The ring enters and leaves every host of workers once."""
    senders = _senders(experiment, host_of)
    hosts = dict.fromkeys(senders)
    share = 2 * (len(senders) - 1) / len(senders) if len(hosts) > 1 else 0.0
    crossing = share * gradient_bytes * _push_share(experiment)
    return dict.fromkeys(hosts, (crossing, crossing))


def _senders(experiment: Experiment, host_of: Mapping[str, str]) -> list[str]:
    """The host of every worker; with aggregation on hosts each host once."""
    workers = [TaskId(TaskType.WORKER, index) for index in range(experiment.num_workers)]
    hosts = [host_of[str(worker)] for worker in workers]
    return list(dict.fromkeys(hosts)) if experiment.strategy.host_aggregation else hosts


def _push_share(experiment: Experiment) -> float:
    """Bytes of a gradient on the wire over those in float32."""
    wire = experiment.strategy.wire
    return 1.0 if wire is None or wire.gradients is WireType.FLOAT32 else 0.5


def network_time_s(
    crossings: Mapping[str, Crossing],
    bits_per_s: float,
    traffic: Mapping[str, tuple[float, float]] = MappingProxyType({}),
) -> float:
    """Seconds until the busiest link has carried its bytes, both directions at once.

    Args:
        bits_per_s: rate of every link and direction, payload.
        traffic: of it, what background traffic takes of a host's link, out and in.
    """
    seconds = [
        8 * size / (bits_per_s - taken)
        for host, crossing in crossings.items()
        for size, taken in zip(crossing, traffic.get(host, (0.0, 0.0)), strict=True)
    ]
    return max(seconds, default=0.0)


def nominal_network_s(experiment: Experiment, gradient_bytes: int, bits_per_s: float) -> float:
    """Time on the busiest link at a stated rate, servers loaded equally, on hosts enough.

    What the stated background traffic takes of a link is not there for gradients.
    """
    num_ps, network = experiment.num_ps, experiment.network
    placed = place_by_number(experiment)
    host_of = {str(task): host for task, host in placed.items()}
    shares = [gradient_bytes // num_ps] * num_ps if num_ps else []
    crossings = link_bytes(experiment, host_of, shares, gradient_bytes)
    traffic = {host: network.traffic_at(int(host)) for host in crossings} if network else {}
    return network_time_s(crossings, bits_per_s, traffic)


def step_bound_s(forward_s: float, backward_s: float, network_s: float) -> float:
    """Seconds of a step whose communication overlaps perfectly with its own backward pass.

    Of one worker.  Where workers differ, the slowest decides for synchronous strategies: a step of
    all workers cannot end before the slowest worker's gradients are there.
    """
    return forward_s + max(backward_s, network_s)
