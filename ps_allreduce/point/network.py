"""A network as an emulated one is asked for: hosts, rates of links, what else these carry.

Decides what such a network consists of, which make sense, what TCP and ports are like where nothing
is stated, and how rates, delays and background traffic are spelled.  How one comes into being is
the business of `launchers.sites.emulated`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from ps_allreduce.errors import UserError
from ps_allreduce.serialization import LATER

MAX_HOSTS = 250

MIN_RATE = 1e3

#: The kernel's token bucket counts bytes per second in 32 bits.
MAX_RATE = 32e9

MAX_DELAY_S = 10.0

#: As a rate: links that nothing limits.
UNLIMITED = "unlimited"

#: The default of Linux, and so of nearly every cluster.
CONGESTION = "cubic"

#: What one busy port takes of a switch's shared memory, whatever its rate: of 12 MB (Broadcom
#: Trident II) with the dynamic threshold alpha = 1/2 that is alpha / (1 + alpha) of all.  Source of
#: the threshold: Choudhury and Hahne, IEEE/ACM Transactions on Networking 6(2), 1998.
PORT_BUFFER_BYTES = 4_000_000

#: A port holds one full packet at least.
MIN_PORT_BUFFER_BYTES = 1_600

MAX_PORT_BUFFER_BYTES = 1_000_000_000

#: With more, TCP hardly gets anything through.
MOST_LOSS = 0.5

#: The least time after which Linux sends a lost segment again (TCP_RTO_MIN in include/net/tcp.h).
RTO_MIN_S = 0.2

RATE_UNITS = {"gbit": 1e9, "mbit": 1e6, "kbit": 1e3, "bit": 1.0}

#: How many make a second.
DELAY_UNITS = {"s": 1.0, "ms": 1e3, "us": 1e6}


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """Bytes that no task sends, at a steady rate during a whole run.

    Attributes:
        bits_per_s: payload.
        source, target: hosts, counted from 0; None for every link: each host sends to the next one
            and the last to the first.
    """

    bits_per_s: float
    source: int | None = None
    target: int | None = None

    def __str__(self) -> str:
        rate = render_rate(self.bits_per_s)
        if self.source is None:
            return f"traffic {rate} on every link"
        return f"traffic {rate} from host {self.source} to {self.target}"


@dataclass(frozen=True, slots=True, kw_only=True)
class EmulatedNetwork:
    """Hosts that each have one full-duplex link to a switch.

    Attributes:
        bits_per_s: rate of every host's link, per direction; None for no limit.
        delay_s: from any host to any other, one way.
        slow_host: the host (counted from 0) whose link has the rate `slow_bits_per_s` instead.
        racks: 1, or 2 with a switch each; the first half of the hosts is in rack 0.
        uplink_bits_per_s: rate of the link between two racks, per direction; None for no limit.
        traffic: what links carry besides what tasks send.
        congestion: the algorithm of TCP that hosts use, as Linux calls it.
        port_buffer_bytes: that may wait at a port of a switch before it loses packets.
        rto_min_s: the least time after which TCP sends a lost segment again.
        loss: share of the packets with payload that every port of a switch loses at random.
    """

    num_hosts: int
    bits_per_s: float | None
    delay_s: float = 0.0
    slow_host: int | None = None
    slow_bits_per_s: float | None = None
    racks: int = 1
    uplink_bits_per_s: float | None = None
    traffic: tuple[Traffic, ...] = field(default=(), metadata=LATER)
    congestion: str = CONGESTION
    port_buffer_bytes: int = PORT_BUFFER_BYTES
    rto_min_s: float = RTO_MIN_S
    loss: float = field(default=0.0, metadata=LATER)

    def __post_init__(self) -> None:
        if problem := next(self._problems(), None):
            raise UserError(problem)

    def _problems(self) -> Iterator[str]:
        if not 1 <= self.num_hosts <= MAX_HOSTS:
            yield f"an emulated network has 1 to {MAX_HOSTS} hosts, got {self.num_hosts}."
        yield from self._problems_of_rates()
        if (self.slow_host is None) != (self.slow_bits_per_s is None):
            yield "a slow host needs a rate of its own, and a slow rate needs its host."
        if self.slow_host is not None and not 0 <= self.slow_host < self.num_hosts:
            yield f"the slow host is one of 0 to {self.num_hosts - 1}, got {self.slow_host}."
        if self.racks not in (1, 2):
            yield f"an emulated network has 1 or 2 racks, got {self.racks}."
        if self.racks == 2 and self.num_hosts < 2:
            yield "two racks need at least 2 hosts, got 1."
        if self.racks == 1 and self.uplink_bits_per_s is not None:
            yield "one rack has no uplink to give a rate to; ask for 2 racks."
        if not 0 <= self.delay_s <= MAX_DELAY_S:  # "not a number" is in no range
            wanted = f"0 to {MAX_DELAY_S:g} s"
            yield f"the delay of an emulated network is {wanted}, got {self.delay_s:g} s."
        yield from self._problems_of_tcp()
        yield from self._problems_of_traffic()

    def _problems_of_tcp(self) -> Iterator[str]:
        if not re.fullmatch(r"[a-z][a-z0-9_]{0,14}", self.congestion):
            yield f"{self.congestion!r} names no congestion control; cubic, reno and bbr do."
        least, most = MIN_PORT_BUFFER_BYTES, MAX_PORT_BUFFER_BYTES
        if not least <= self.port_buffer_bytes <= most:
            yield f"a port buffers {least} to {most} bytes, got {self.port_buffer_bytes}."
        if not 1e-3 <= self.rto_min_s <= 100:
            yield f"the least retransmission timeout is 1 ms to 100 s, got {self.rto_min_s:g} s."

        if not 0 <= self.loss <= MOST_LOSS:
            yield f"the loss of an emulated network is 0 to {MOST_LOSS:g}, got {self.loss:g}."

    def _problems_of_traffic(self) -> Iterator[str]:
        if self.traffic and self.num_hosts < 2:
            yield "background traffic needs 2 or more hosts."
        for each in self.traffic:
            one_sided = (each.source is None) != (each.target is None)
            if one_sided or (each.source is not None and each.source == each.target):
                yield f"{each}: background traffic goes from one host to another, or on every link."
            if not {each.source, each.target} <= {None, *range(self.num_hosts)}:
                yield f"{each}: the hosts are 0 to {self.num_hosts - 1}."
            yield from _problems_of_rate("background traffic", each.bits_per_s)
        for host in range(self.num_hosts):
            rate, carried = self.link_bits_per_s(host), max(self.traffic_at(host))
            if rate is not None and carried >= rate:
                yield (
                    f"background traffic of {render_rate(carried)} leaves nothing of the link of "
                    f"host {host}, which has {render_rate(rate)}."
                )

    def streams(self) -> dict[tuple[int, int], float]:
        """Background traffic in bits per second, by the hosts that send and receive it."""
        streams: dict[tuple[int, int], float] = {}
        for each in self.traffic:
            pairs = [(host, (host + 1) % self.num_hosts) for host in range(self.num_hosts)]
            if each.source is not None and each.target is not None:
                pairs = [(each.source, each.target)]
            for pair in pairs:
                streams[pair] = streams.get(pair, 0.0) + each.bits_per_s
        return streams

    def traffic_at(self, host: int) -> tuple[float, float]:
        """Background traffic that a host sends and receives, in bits per second."""
        streams = self.streams().items()
        return (
            sum(rate for (source, _), rate in streams if source == host),
            sum(rate for (_, target), rate in streams if target == host),
        )

    def _problems_of_rates(self) -> Iterator[str]:
        rates = {
            "link": self.bits_per_s,
            "slow host's link": self.slow_bits_per_s,
            "uplink": self.uplink_bits_per_s,
        }
        for name, rate in rates.items():
            if rate is not None:
                yield from _problems_of_rate(f"an emulated {name}", rate)

    def rack_of(self, host: int) -> int:
        """The rack of a host; of an odd number, the larger half is in rack 0."""
        return 0 if self.racks == 1 or host < (self.num_hosts + 1) // 2 else 1

    def link_bits_per_s(self, host: int) -> float | None:
        """The rate of a host's link, per direction; None for no limit."""
        return self.slow_bits_per_s if host == self.slow_host else self.bits_per_s

    @property
    def is_unlimited(self) -> bool:
        """No link has a rate."""
        return not any((self.bits_per_s, self.slow_bits_per_s, self.uplink_bits_per_s))

    def title_parts(self) -> list[str]:
        """What the links were asked to be, without the number of hosts: `1gbit`, `delay 2ms`."""
        parts = [_limit_text(self.bits_per_s)]
        if self.delay_s:
            parts.append(f"delay {self.delay_s * 1e3:g}ms")
        if self.slow_host is not None:
            parts.append(f"host {self.slow_host} {_limit_text(self.slow_bits_per_s)}")
        if self.racks > 1:
            parts.append(f"{self.racks} racks")
        if self.uplink_bits_per_s is not None:
            parts.append(f"uplink {render_rate(self.uplink_bits_per_s)}")
        if self.congestion != CONGESTION:
            parts.append(self.congestion)
        if self.port_buffer_bytes != PORT_BUFFER_BYTES:
            size = self.port_buffer_bytes / 1e3
            parts.append(f"ports of {size:{'.3g' if size < 1e3 else '.0f'}} kB")
        if self.rto_min_s != RTO_MIN_S:
            parts.append(f"timeouts from {self.rto_min_s * 1e3:g}ms")
        if self.loss:
            parts.append(f"loss {self.loss:g}")
        return [*parts, *map(str, self.traffic)]

    def __str__(self) -> str:
        return ", ".join(self.title_parts())

    def scaled(self, factor: float) -> EmulatedNetwork:
        """The same network on another time scale: rates times a factor, times divided by it.

        Bytes stay: buffers hold as many of the same messages.
        """
        if not (math.isfinite(factor) and factor > 0):
            raise UserError(f"a network is scaled by a number above 0, got {factor:g}.")

        def scale(rate: float | None) -> float | None:
            return None if rate is None else rate * factor

        return replace(
            self,
            bits_per_s=scale(self.bits_per_s),
            delay_s=self.delay_s / factor,
            rto_min_s=self.rto_min_s / factor,
            slow_bits_per_s=scale(self.slow_bits_per_s),
            uplink_bits_per_s=scale(self.uplink_bits_per_s),
            traffic=tuple(replace(t, bits_per_s=t.bits_per_s * factor) for t in self.traffic),
        )


def _problems_of_rate(whose: str, rate: float) -> Iterator[str]:
    if not MIN_RATE <= rate <= MAX_RATE:
        wanted = f"{render_rate(MIN_RATE)} to {render_rate(MAX_RATE)}"
        yield f"the rate of {whose} is {wanted}, got {render_rate(rate)}."


def parse_rate(text: str) -> float:
    """Bits per second of `1gbit`; prefixes count in thousands, as those of `tc` do.

    Links without a limit (`unlimited`) have an infinite one.

    Raises:
        UserError: the text is no rate.
    """
    if text.strip().lower() == UNLIMITED:
        return math.inf
    number, unit = _parse(text, RATE_UNITS, "rate", "1gbit or 2.5mbit")
    return number * RATE_UNITS[unit]


def parse_traffic(text: str) -> Traffic:
    """Background traffic as `200mbit`, on every link, or as `0-1:200mbit`, from host 0 to 1.

    Raises:
        UserError: the text is neither.
    """
    match = re.fullmatch(r"(?:([0-9]{1,3})-([0-9]{1,3}):)?([^:]*)", text.strip())
    if match is None:
        raise UserError(
            f"{text!r} is no traffic; write a rate for every link (200mbit), or two hosts and a "
            "rate (0-1:200mbit)."
        )
    rate = parse_rate(match[3])
    if match[1] is None:
        return Traffic(bits_per_s=rate)
    return Traffic(bits_per_s=rate, source=int(match[1]), target=int(match[2]))


def parse_delay(text: str) -> float:
    """Seconds of `5ms`.

    Raises:
        UserError: the text is no delay.
    """
    number, unit = _parse(text, DELAY_UNITS, "delay", "5ms or 50us")
    return number / DELAY_UNITS[unit]


def render_rate(bits_per_s: float) -> str:
    """A rate as `parse_rate` reads it, in the largest unit of which there is at least one."""
    if math.isinf(bits_per_s):
        return UNLIMITED
    fitting = [(unit, size) for unit, size in RATE_UNITS.items() if bits_per_s >= size]
    unit, size = fitting[0] if fitting else ("bit", 1.0)
    return f"{format(bits_per_s / size, '.12f').rstrip('0').rstrip('.')}{unit}"


def _limit_text(bits_per_s: float | None) -> str:
    return "no limit" if bits_per_s is None else render_rate(bits_per_s)


def _parse(text: str, units: Iterable[str], what: str, example: str) -> tuple[float, str]:
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)([a-zA-Z]+)", text.strip())
    unit = match[2].lower() if match else ""
    if match is None or unit not in units:
        raise UserError(
            f"{text!r} is not a {what}; a {what} is a number and one of {', '.join(units)}, "
            f"for instance {example}."
        )
    return float(match[1]), unit
