"""Background traffic of a run: between which hosts, its start, and how much of it arrived.

Decides that traffic runs before the first task and until the last one is gone, and what is said of
a stream that fell behind.  How it is sent is decided in `ps_allreduce.fork_server.streams`.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from launchers.fork_servers.host_servers import HostServers
from launchers.site import Site
from ps_allreduce.errors import HostFault, LaunchError
from ps_allreduce.inspection.questions import ReceiveTraffic, SendTraffic, TrafficCarried
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.network import render_rate
from ps_allreduce.record.records import TrafficRecord

if TYPE_CHECKING:
    from launchers.run.state import RunMonitor

START_DEADLINE_S = 30.0

#: Traffic that reaches less than this share of its stated rate is a doubt.
LEAST_SHARE = 0.9


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """Traffic from one host to another; `bits_per_s` as stated."""

    source: str
    target: str
    bits_per_s: float

    @property
    def sender(self) -> str:
        """The name of the process that sends."""
        return f"traffic sender {self.source}-{self.target}"

    @property
    def receiver(self) -> str:
        """The name of the process that receives."""
        return f"traffic receiver {self.source}-{self.target}"

    @property
    def hosts(self) -> Mapping[str, str]:
        """The host of either process."""
        return {self.sender: self.source, self.receiver: self.target}


def streams_of(experiment: Experiment, hosts: Sequence[str]) -> tuple[Stream, ...]:
    """The background traffic of a run, on the hosts of its network."""
    streams = {} if experiment.network is None else experiment.network.streams()
    return tuple(
        Stream(source=hosts[source], target=hosts[target], bits_per_s=rate)
        for (source, target), rate in streams.items()
    )


def start_traffic(servers: HostServers, site: Site, monitor: RunMonitor) -> float:
    """Start all streams of a run, and return the seconds that this took.

    Raises:
        LaunchError: an end cannot be started.
    """
    begin, address_of = time.monotonic(), {}
    for stream in monitor.streams:
        client = servers.clients[stream.target]
        address_of[stream.target] = address = site.address_of(client, None)
        client.send(ReceiveTraffic(task=stream.receiver, address=address))
    _hear_until_listening(servers, monitor)
    for stream in monitor.streams:
        servers.clients[stream.source].send(
            SendTraffic(
                task=stream.sender,
                address=address_of[stream.target],
                port=monitor.ports[stream.receiver],
                bits_per_s=stream.bits_per_s,
            )
        )
    return time.monotonic() - begin


def _hear_until_listening(servers: HostServers, monitor: RunMonitor) -> None:
    def missing() -> dict[str, str]:
        """The hosts of receivers that are not there yet, with one of these each."""
        named = sorted(monitor.streams, key=lambda stream: stream.receiver, reverse=True)
        return {s.target: s.receiver for s in named if s.receiver not in monitor.ports}

    def take(_: str, message: object) -> None:
        monitor.take(message)
        if monitor.has_failed:
            raise LaunchError(f"{monitor.culprit()[1]}.")

    if not servers.hear(START_DEADLINE_S, missing, take):
        late = min(missing().values())
        raise HostFault(f"background traffic cannot be started: no {late}.")


def traffic_records(monitor: RunMonitor, window: tuple[float, float]) -> tuple[TrafficRecord, ...]:
    """What of every stream arrived around a window on the launcher's clock, as far as is known."""
    rates = [
        (stream, _rate(monitor.traffic.get(stream.receiver, ()), window))
        for stream in monitor.streams
    ]
    return tuple(
        TrafficRecord(source=stream.source, target=stream.target, bits_per_s=rate)
        for stream, rate in rates
        if rate is not None
    )


def _rate(reports: Sequence[TrafficCarried], window: tuple[float, float]) -> float | None:
    """From the last report before the window to the first after it; None with too few."""
    marks = [(report.time, report.num_bytes) for report in reports]
    before = [mark for mark in marks if mark[0] <= window[0]][-1:]
    after = [mark for mark in marks if mark[0] >= window[1]][:1]
    around = [*before, *(mark for mark in marks if window[0] < mark[0] < window[1]), *after]
    if len(around) < 2:
        return None
    (begin, first), (end, last) = around[0], around[-1]
    return 8 * (last - first) / (end - begin)


def traffic_warnings(
    streams: Sequence[Stream], records: Sequence[TrafficRecord]
) -> tuple[str, ...]:
    """A sentence about the stream that fell behind most, if one did."""
    stated = {(stream.source, stream.target): stream.bits_per_s for stream in streams}
    shares = {r: r.bits_per_s / stated[r.source, r.target] for r in records}
    behind = [record for record in records if shares[record] < LEAST_SHARE]
    if not behind:
        return ()
    worst = min(behind, key=shares.__getitem__)
    return (
        f"{len(behind)} of {len(records)} streams of background traffic fell behind: from "
        f"{worst.source} to {worst.target} came {render_rate(round(worst.bits_per_s))} of "
        f"{render_rate(stated[worst.source, worst.target])}",
    )
