"""What a step of an experiment that nobody has launched would ask for.  Pure.

Decides that hosts are of the same kind, and that sums do where hosts are alike (`symmetric`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from analysis.predict.loads import Cluster, links_s, load_of
from analysis.predict.models import DealtLoad, Load
from analysis.predict.sent import SentBytes, grown
from analysis.predict.symmetric import extremes, symmetric
from ps_allreduce.bounds import Flow, Rates, demands, network_time_s
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
    return _behind_uplink(load, flows, experiment.network, cluster)


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
    between = [flow for flow in racks if flow.source != flow.target]
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
