"""What a step of an experiment asks of workers, links and processors.  Pure.

Decides how the figures of a cluster become a load of `models`: bytes by the placement of variables,
computation by that of a lone worker, and on which processors the work with messages falls, half of
it at either end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from analysis.predict.models import DealtLoad, Floats, Load, TogetherLoad, ring_rounds
from ps_allreduce.bounds import Flow, Rates, link_bytes, network_time_s
from ps_allreduce.cluster import TaskId, TaskType
from ps_allreduce.point.experiment import Experiment

#: Steps of which the spread of an emulated accelerator is taken.
_STEPS = 1000

#: The processors of all hosts, where these are emulated on one machine.
_MACHINE = "machine"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """What is taken over to more hosts of the same kind.

    Attributes:
        forward_s, backward_s: of a lone worker's step, the part before its last backward pass, and
            that pass; of an emulated accelerator what a step takes beside it, and 0.
        examples: of a lone worker's step.
        spread: standard deviation of a lone worker's step over its mean.
        link_share: payload of plain TCP over the stated rate of links; None where none is stated.
        bytes_per_s: payload of plain TCP, each direction; None where all tasks share one host.
        cores: of every host, or of the machine that emulates all.
        shares_cores: hosts are emulated on one machine.
        lone_cores: that the computation of a lone worker keeps busy there; else 0.
        crowding: where workers want more processors than there are, they compute so many times as
            long as by their share: caches and memory are shared as well.
    """

    forward_s: float
    backward_s: float
    examples: int
    spread: float
    link_share: float | None
    bytes_per_s: float | None
    cores: float
    shares_cores: bool
    lone_cores: float
    crowding: float = 1.0


def load_of(
    experiment: Experiment,
    host_of: Mapping[str, str],
    flows: Sequence[Flow],
    rates: Rates,
    cluster: Cluster,
    cpu_s_per_byte: float,
    message: float,
) -> Load:
    """What a step of all workers asks for.

    Args:
        host_of: the host of every task.
        rates: of every link that carries something.
        message: the share of the bytes that is in one message.
        cpu_s_per_byte: of sender and receiver together.
    """
    homes = [host_of[str(TaskId(TaskType.WORKER, i))] for i in range(experiment.num_workers)]
    if not experiment.strategy.deals_steps:
        network_s = network_time_s(flows, rates)
        messages_s = max(_messages_s(flows, cluster, cpu_s_per_byte).values(), default=0.0)
        return _together(experiment, homes, cluster, network_s, messages_s, message)
    forward_s, backward_s, _ = passes(experiment, cluster)
    alone_s = forward_s + backward_s
    return DealtLoad(
        forward_s=forward_s,
        backward_s=backward_s,
        links_s=links_s(flows, rates, experiment.num_workers),
        processors_s=_processors_s(homes, flows, cluster, cpu_s_per_byte, alone_s),
        message=message,
        ways=2,
        even=not experiment.strategy.steps_may_differ,
    )


def _together(
    experiment: Experiment,
    homes: Sequence[str],
    cluster: Cluster,
    network_s: float,
    messages_s: float,
    message: float,
) -> TogetherLoad:
    """Where all workers make a step together: the slowest of them, and all that is sent in it."""
    forward_s, backward_s, spread = passes(experiment, cluster)
    slowest, strategy = int(np.argmax(forward_s + backward_s)), experiment.strategy
    wanted = _most_on_a_host(homes, cluster) * cluster.lone_cores / cluster.cores
    crowd, busy = on_processors(wanted, cluster.crowding)
    return TogetherLoad(
        num_workers=experiment.num_workers,
        forward_s=float(forward_s[slowest]),
        backward_s=float(backward_s[slowest]),
        network_s=network_s,
        messages_s=messages_s,
        rounds=ring_rounds(experiment.num_workers) if strategy.uses_collective else 0,
        crowd=crowd,
        busy=busy,
        spread=spread,
        message=message,
        ways=2 if strategy.uses_servers else 1,
        sends=experiment.num_workers > 1 or strategy.uses_servers,
    )


def on_processors(wanted: float, crowding: float) -> tuple[float, float]:
    """How many times as long computation takes, and how busy it keeps processors.

    Args:
        wanted: processors that workers want, over those that there are.
        crowding: as in `Cluster`.
    """
    return wanted * crowding if wanted > 1.0 else 1.0, min(1.0, wanted)


def passes(experiment: Experiment, cluster: Cluster) -> tuple[Floats, Floats, float]:
    """Seconds of each worker before its last backward pass and of it, and their spread."""
    load, count = experiment.of_each, experiment.num_workers
    longer = load.examples_per_step / cluster.examples
    if load.emulated is None:
        ones = np.ones(count)
        return (
            longer * cluster.forward_s * ones,
            longer * cluster.backward_s * ones,
            cluster.spread,
        )
    scales = np.stack([load.emulated.scales(i, np.arange(_STEPS)) for i in range(count)])
    means = scales.mean(axis=1)
    batches = load.accumulation
    backward_s = means * load.emulated.backward_s
    forward_s = means * (load.emulated.forward_s * batches) + backward_s * (batches - 1)
    spread = float((scales.std(axis=1) / means).max())
    return forward_s + cluster.forward_s, backward_s, spread


def _place(host: str, cluster: Cluster) -> str:
    return _MACHINE if cluster.shares_cores else host


def _most_on_a_host(homes: Sequence[str], cluster: Cluster) -> int:
    places = [_place(home, cluster) for home in homes]
    return max(places.count(each) for each in places)


def _messages_s(flows: Sequence[Flow], cluster: Cluster, cpu_s_per_byte: float) -> dict[str, float]:
    """Seconds in which the processors of each host handle all messages."""
    both: dict[str, float] = {}
    for flow in flows:
        for host in (flow.source, flow.target):
            place = _place(host, cluster)
            seconds = flow.num_bytes * cpu_s_per_byte / 2 / cluster.cores
            both[place] = both.get(place, 0.0) + seconds
    return both


def links_s(flows: Sequence[Flow], rates: Rates, num_workers: int) -> Floats:
    """Seconds in which a step of each worker keeps each direction of a link busy."""
    shares = [link_bytes(f for f in flows if f.worker == i) for i in range(num_workers)]
    hosts = dict.fromkeys(host for share in shares for host in share)
    busy = [
        [share.get(host, (0.0, 0.0))[way] / rates[host][way] for host in hosts for way in (0, 1)]
        for share in shares
    ]
    return np.array(busy, dtype=np.float64).reshape(num_workers, -1)


def _processors_s(
    homes: Sequence[str],
    flows: Sequence[Flow],
    cluster: Cluster,
    cpu_s_per_byte: float,
    alone_s: Floats,
) -> Floats:
    """Seconds in which a step of each worker keeps the processors of each host busy."""
    own = [
        _messages_s([f for f in flows if f.worker == i], cluster, cpu_s_per_byte)
        for i in range(len(homes))
    ]
    for home, messages, seconds in zip(homes, own, alone_s, strict=True):
        place = _place(home, cluster)
        computing = cluster.lone_cores * float(seconds) / cluster.cores * cluster.crowding
        messages[place] = messages.get(place, 0.0) + computing
    places = dict.fromkeys(place for messages in own for place in messages)
    busy = [[messages.get(place, 0.0) for place in places] for messages in own]
    return np.array(busy, dtype=np.float64).reshape(len(homes), -1)
