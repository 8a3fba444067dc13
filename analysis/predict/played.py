"""A synchronous step with servers, message by message, where links differ.  Pure.

Decides how long links wait for each other.  Equal links run dry together, so the last value's way
back adds to the step, as `models` says.  A link that is slower than all others rarely waits: what
it has to carry next is there already.  How much of the way back is left then depends on who sends
what where, so the step is played.  Ports of hosts, and uplinks of racks, serve pieces of messages
first come, first served, as a switch with one queue for each port does.

A worker's gradients are ready one after the other, evenly over its backward pass.  To each server
so many are under way as may be; the next one leaves when a value is back.  A server sends a value
to every worker when all gradients of it have come.  Processors are left out.
"""

from __future__ import annotations

import heapq
import itertools
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from ps_allreduce.bounds import Rates

#: Of a message: a port passes on what it has of it.
PIECES = 8

#: What it is, and of which host or rack.
_Port = tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Play:
    """What a step consists of.

    Attributes:
        workers, servers: the host of each.
        held: bytes of each server.
        pushed: bytes of a gradient over those of its value.
        backward_s: of the backward pass.
        message: bytes of a value, about.
        in_flight: messages under way between a worker and a server; 0 is no bound.
        rates: of hosts' links.
        racks: of each host; empty where racks share no uplink.
        uplink: bytes per second of each rack, either direction.
    """

    workers: tuple[str, ...]
    servers: tuple[str, ...]
    held: tuple[int, ...]
    pushed: float
    backward_s: float
    message: float
    in_flight: int
    rates: Rates
    racks: Mapping[str, str] = field(default_factory=dict)
    uplink: float = 0.0

    def messages(self, server: int) -> int:
        """In so many pieces of equal size are a server's bytes sent."""
        return max(1, round(self.held[server] / self.message)) if self.held[server] else 0

    def route(self, source: str, target: str) -> tuple[_Port, ...]:
        """The ports from one host to another one; none to itself."""
        if source == target:
            return ()
        rack = self.racks.get(source)
        between = () if rack == self.racks.get(target) else (("up", str(rack)),)
        return (("out", source), *between, ("in", target))

    def rate(self, port: _Port) -> float:
        """Bytes per second."""
        kind, name = port
        return self.uplink if kind == "up" else self.rates[name][kind == "in"]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Message:
    """A gradient, or the value that comes back, by its place among those of its server."""

    worker: int
    server: int
    number: int
    is_value: bool = False


@dataclass(slots=True, kw_only=True)
class _Network:
    """Ports, and what is on its way: when, in which order, where, bytes, and what a piece ends."""

    play: Play
    free_at: dict[_Port, float] = field(default_factory=dict, init=False)
    _pieces: list[tuple[float, int, tuple[_Port, ...], float, _Message | None]] = field(
        default_factory=list, init=False
    )
    _order: Iterator[int] = field(default_factory=itertools.count, init=False)

    def send(self, moment: float, each: _Message) -> None:
        """Hand a message over at a moment, which may be later than now."""
        play = self.play
        ends = play.workers[each.worker], play.servers[each.server]
        size = play.held[each.server] / play.messages(each.server) / PIECES
        if not each.is_value:
            size *= play.pushed
        route = play.route(*(ends[::-1] if each.is_value else ends))
        for left in reversed(range(PIECES)):
            self._put(moment, route, size, None if left else each)

    def _put(
        self, moment: float, route: tuple[_Port, ...], size: float, ends: _Message | None
    ) -> None:
        heapq.heappush(self._pieces, (moment, next(self._order), route, size, ends))

    def arrivals(self) -> Iterator[tuple[float, _Message]]:
        """Messages with the moments at which their last piece arrives."""
        while self._pieces:
            moment, _, route, size, ends = heapq.heappop(self._pieces)
            if route:
                port, *rest = route
                done = max(moment, self.free_at.get(port, 0.0)) + size / self.play.rate(port)
                self.free_at[port] = done
                self._put(done, tuple(rest), size, ends)
            elif ends is not None:
                yield moment, ends


def played_s(play: Play) -> float:
    """Seconds from the begin of the backward pass until the last value is back."""
    network, moment, workers = _Network(play=play), 0.0, range(len(play.workers))
    for server, worker in itertools.product(range(len(play.servers)), workers):
        for number in range(play.in_flight or play.messages(server)):
            _push(network, 0.0, _Message(worker=worker, server=server, number=number))
    gradients: Counter[tuple[int, int]] = Counter()
    for moment, came in network.arrivals():
        if came.is_value and play.in_flight:
            number = came.number + play.in_flight
            _push(network, moment, replace(came, number=number, is_value=False))
        elif not came.is_value:
            gradients[came.server, came.number] += 1
            if gradients[came.server, came.number] == len(workers):
                for worker in workers:
                    network.send(moment, replace(came, worker=worker, is_value=True))
    return max(moment, play.backward_s)


def _push(network: _Network, moment: float, each: _Message) -> None:
    """Send a gradient when it is ready, if there are so many."""
    play, count = network.play, network.play.messages(each.server)
    if each.number < count:
        network.send(max(moment, play.backward_s * (each.number + 1) / count), each)
