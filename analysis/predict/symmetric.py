"""Synchronous steps where every host has one worker or one server, or both, and links are alike.

Sums need no list of flows there, so thousands of clusters are weighed in a second, and so does the
script in `report.html`, which holds the same formulas.  Decides for which experiments that is so.
Pure.
"""

from __future__ import annotations

from dataclasses import dataclass

from analysis.predict.loads import Cluster, on_processors, passes
from analysis.predict.models import TogetherLoad, ring_rounds
from analysis.predict.sent import SentBytes, grown
from ps_allreduce.bounds import push_share, ring_share
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.layout import is_apart
from ps_allreduce.point.network import EmulatedNetwork
from ps_allreduce.point.resources import Coordinator


@dataclass(frozen=True, slots=True, kw_only=True)
class Symmetric:
    """What a setting asks for with any number of workers and servers.

    Attributes:
        has_servers: else gradients go around a ring.
        apart: servers have hosts of their own.
        size: bytes of all gradients, in float32.
        pushed: bytes of a gradient on the wire over those in float32.
        forward_s, backward_s: of a step, whatever its examples.
        forward_each_s, backward_each_s: of every example of it.
        spread: of a lone worker's step.
        wanted: share of the processors that a worker keeps busy.
        shares_cores: all hosts are emulated on one machine.
        crowding: as in `Cluster`.
        cpu_s: in which processors handle a byte at one end.
        message: what is in one message: its bytes with servers, the share for each worker in a
            ring; or the share of all bytes, where `message_grows` is false.
    """

    has_servers: bool
    apart: bool
    size: float
    pushed: float
    forward_s: float
    backward_s: float
    forward_each_s: float
    backward_each_s: float
    spread: float
    wanted: float
    shares_cores: bool
    crowding: float
    cpu_s: float
    message: float
    message_grows: bool

    def load(
        self, workers: int, held: tuple[int, int], bytes_per_s: float, examples: int
    ) -> TogetherLoad:
        """What a step asks for.

        Args:
            held: bytes of the server that holds most, and of the one that holds least, 0 where a
                host of workers has none.
            bytes_per_s: payload of every link, each direction.
            examples: of a worker's step.
        """
        busiest, of_host, all_bytes = self._carried(workers, *held)
        wanted = self.wanted * (workers if self.shares_cores else 1)
        crowd, busy = on_processors(wanted, self.crowding)
        return TogetherLoad(
            num_workers=workers,
            forward_s=self.forward_s + examples * self.forward_each_s,
            backward_s=self.backward_s + examples * self.backward_each_s,
            network_s=busiest / bytes_per_s,
            messages_s=self.cpu_s * (2 * all_bytes if self.shares_cores else of_host),
            rounds=0 if self.has_servers else ring_rounds(workers),
            crowd=crowd,
            busy=busy,
            spread=self.spread,
            message=grown(self.message, self.message_grows, workers, held[0]),
            ways=2 if self.has_servers else 1,
            sends=workers > 1 or self.has_servers,
        )

    def _carried(self, workers: int, most: float, least: float) -> tuple[float, float, float]:
        """Bytes of the busiest link's busier direction, of a host's tasks, and of all that is sent.

        What a server beside a worker exchanges with it takes no link, but processors at both ends.
        """
        size, pushed = self.size, self.pushed
        if not self.has_servers:
            each = ring_share(workers) * size * pushed
            return each, 2 * each, workers * each
        if self.apart:
            busiest = max(workers * most, size)
            return busiest, (1 + pushed) * busiest, workers * size * (1 + pushed)
        ways = [
            (pushed * (size - own) + (workers - 1) * own, size - own + pushed * (workers - 1) * own)
            for own in (most, least)
        ]
        return (
            max(map(max, ways)),
            (1 + pushed) * (size + workers * most),
            workers * size * (1 + pushed),
        )


def symmetric(
    experiment: Experiment, sent: SentBytes, cluster: Cluster, cpu_s_per_byte: float
) -> Symmetric | None:
    """The setting of an experiment with any number of workers and servers; None where it is not so.

    Args:
        cpu_s_per_byte: of sender and receiver together.
    """
    own = experiment.strategy
    if not _is_lined_up(experiment, sent):
        return None
    forward_s, backward_s, spread = passes(experiment, cluster)
    examples = experiment.of_each.examples_per_step
    each = 0.0 if experiment.workload.emulated is not None else 1 / examples
    message, grows = sent.message_of(experiment)
    return Symmetric(
        has_servers=own.uses_servers,
        apart=is_apart(experiment),
        size=float(sum(sent.sizes) if own.uses_servers else sent.gradient_bytes),
        pushed=push_share(experiment),
        forward_s=0.0 if each else float(forward_s[0]),
        backward_s=0.0 if each else float(backward_s[0]),
        forward_each_s=float(forward_s[0]) * each,
        backward_each_s=float(backward_s[0]) * each,
        spread=spread,
        wanted=cluster.lone_cores / cluster.cores,
        shares_cores=cluster.shares_cores,
        crowding=cluster.crowding,
        cpu_s=cpu_s_per_byte / 2 / cluster.cores,
        message=message,
        message_grows=grows,
    )


def _is_lined_up(experiment: Experiment, sent: SentBytes) -> bool:
    own, spread, network = experiment.strategy, experiment.spread, experiment.network
    emulated = experiment.workload.emulated
    return (
        own.synchronous
        and own.uses_servers != own.uses_collective
        and not own.host_aggregation
        and sent.rows is None
        and spread is not None
        and spread.workers_per_host == 1
        and (spread.ps_per_host or 1) == 1
        and spread.coordinator is not Coordinator.OWN_HOST
        and (is_apart(experiment) or experiment.num_ps <= experiment.num_workers)
        and not has_unlike_links(network)
        and (emulated is None or not (emulated.factors or emulated.jitter))
    )


def has_unlike_links(network: EmulatedNetwork | None) -> bool:
    """Some link has a rate of its own, or carries something else."""
    return network is not None and not (
        network.slow_host is None and network.uplink_bits_per_s is None and not network.traffic
    )


def extremes(placed: tuple[int, ...], workers: int) -> tuple[int, int]:
    """Bytes of the server that holds most, and of the host that holds least beside a worker."""
    return max(placed, default=0), min(placed, default=0) if len(placed) >= workers else 0
