"""What a step of an experiment that nobody has launched would ask for.  Pure.

Decides that hosts are of the same kind, that sums do where hosts are alike (`symmetric`), and that
a synchronous step with servers is played where links differ (`played`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from analysis.predict.loads import Cluster, links_s, load_of
from analysis.predict.models import DealtLoad, Load, TogetherLoad
from analysis.predict.played import Play, played_s
from analysis.predict.sent import SentBytes, grown
from analysis.predict.symmetric import extremes, has_unlike_links, symmetric
from ps_allreduce.bounds import Flow, Rates, demands, network_time_s, push_share
from ps_allreduce.cluster import TaskId, TaskType
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.layout import num_hosts, place_by_number
from ps_allreduce.point.network import EmulatedNetwork


def planned_load(
    experiment: Experiment, sent: SentBytes, cluster: Cluster, cpu_s_per_byte: float
) -> Load:
    """What a step would ask for, from what its setting has sent.

    Raises:
        UserError: there are more servers than variables or parts of them.
    """
    placed = sent.placed(experiment)
    form = symmetric(experiment, sent, cluster, cpu_s_per_byte)
    if form is None:
        return load_by_flows(experiment, sent, cluster, cpu_s_per_byte)
    held = extremes(placed, experiment.num_workers)
    rate, examples = payload(experiment, cluster), experiment.of_each.examples_per_step
    return form.load(experiment.num_workers, held, rate, examples)


def load_by_flows(
    experiment: Experiment, sent: SentBytes, cluster: Cluster, cpu_s_per_byte: float
) -> Load:
    """The same from all that hosts send each other, whatever their links are."""
    host_of = {str(task): host for task, host in place_by_number(experiment).items()}
    placed = sent.placed(experiment)
    flows = demands(experiment, host_of, placed, sent.gradient_bytes, sent.rows)
    rates = _planned_rates(experiment, cluster, list(host_of.values()))
    message = grown(*sent.message_of(experiment), experiment.num_workers, max(placed, default=0))
    load = load_of(experiment, host_of, flows, rates, cluster, cpu_s_per_byte, message)
    load = _behind_uplink(load, flows, experiment.network, cluster)
    if isinstance(load, TogetherLoad) and _is_played(experiment, sent):
        return _waiting(load, _play_of(load, experiment, host_of, placed, cluster))
    return load


def _is_played(experiment: Experiment, sent: SentBytes) -> bool:
    own = experiment.strategy
    return (
        has_unlike_links(experiment.network)
        and own.uses_servers
        and not own.uses_collective
        and not own.host_aggregation
        and sent.rows is None
        and bool(sent.sizes)
        and own.wire is not None
    )


def _waiting(load: TogetherLoad, play: Play) -> TogetherLoad:
    """The same with as much of the way back as a played step shows, instead of one message's."""
    least = max(load.backward_s, load.network_s)
    most = load.backward_s + load.ways * load.network_s
    shown = played_s(play) - least
    return replace(load, message=min(1.0, max(0.0, shown) / (most - least)) if most > least else 0)


def _play_of(
    load: TogetherLoad,
    experiment: Experiment,
    host_of: Mapping[str, str],
    placed: Sequence[int],
    cluster: Cluster,
) -> Play:
    """What is played.  Traffic is left out: what of it had to wait fills the gaps between messages.

    Its bytes count in the time of the links, which is `load.network_s`.
    """
    network, wire = experiment.network, experiment.strategy.wire
    assert network is not None
    assert wire is not None
    hosts = dict.fromkeys(host_of.values())
    shared = network.uplink_bits_per_s
    return Play(
        workers=_hosts_of(TaskType.WORKER, experiment.num_workers, host_of),
        servers=_hosts_of(TaskType.PS, experiment.num_ps, host_of),
        held=tuple(placed),
        pushed=push_share(experiment),
        backward_s=load.backward_s,
        message=load.message * max(placed),
        in_flight=wire.in_flight,
        rates=_planned_rates(
            replace(experiment, network=replace(network, traffic=())), cluster, [*hosts]
        ),
        racks={} if shared is None else {host: _rack(network, host) for host in hosts},
        uplink=(shared or 0.0) * (cluster.link_share or 0.0) / 8,
    )


def _hosts_of(kind: TaskType, count: int, host_of: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(host_of[str(TaskId(kind, index))] for index in range(count))


def _behind_uplink(
    load: Load, flows: Sequence[Flow], network: EmulatedNetwork | None, cluster: Cluster
) -> Load:
    """The same where what goes from rack to rack shares a link, in each direction."""
    if network is None or network.uplink_bits_per_s is None or cluster.link_share is None:
        return load
    rate = network.uplink_bits_per_s * cluster.link_share / 8
    racks = [
        replace(flow, source=_rack(network, flow.source), target=_rack(network, flow.target))
        for flow in flows
    ]
    between = [flow for flow in racks if flow.crosses]
    rates = dict.fromkeys({flow.source for flow in between}, (rate, rate))
    if isinstance(load, DealtLoad):
        shared = links_s(between, rates, load.num_workers)
        return replace(load, links_s=np.hstack([load.links_s, shared]))
    return replace(load, network_s=max(load.network_s, network_time_s(between, rates)))


def _rack(network: EmulatedNetwork, host: str) -> str:
    return str(network.rack_of(int(host)))


def payload(experiment: Experiment, cluster: Cluster) -> float:
    """Bytes per second of a link that is like most, each direction."""
    network = experiment.network
    if network is None or cluster.link_share is None:
        return cluster.bytes_per_s or np.inf
    return np.inf if network.bits_per_s is None else network.bits_per_s * cluster.link_share / 8


def _planned_rates(experiment: Experiment, cluster: Cluster, hosts: Sequence[str]) -> Rates:
    """Payload of every link, each direction, less what is to be sent besides."""
    network = experiment.network
    if network is None or cluster.link_share is None:
        return dict.fromkeys(hosts, (cluster.bytes_per_s or np.inf,) * 2)
    rates = {}
    for host in dict.fromkeys(hosts):
        stated = network.link_bits_per_s(int(host))
        out, into = network.traffic_at(int(host))
        carried = np.inf if stated is None else stated * cluster.link_share
        rates[host] = (carried - out) / 8, (carried - into) / 8
    return rates


def with_hosts(experiment: Experiment) -> Experiment:
    """The same point on an emulated network with hosts enough."""
    network = experiment.network
    if network is None:
        return experiment
    wanted = max(num_hosts(experiment), network.num_hosts)
    return replace(experiment, network=replace(network, num_hosts=wanted))
