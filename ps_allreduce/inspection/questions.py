"""What a host is asked when it, or a link of it, is looked at before a run, and what it answers.

Decides what is looked at.  `inspection` decides how it is found out, `launchers.doctor` what of it
is good or bad.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ps_allreduce.record.hosts import TcpCounters

#: Every kind of message between a launcher and a fork server, by its name.
MESSAGES: dict[str, type[Any]] = {}


class Message:
    """What a launcher and a fork server say to each other; whoever inherits is a kind of it."""

    __slots__ = ()

    def __init_subclass__(cls) -> None:
        MESSAGES[cls.__name__] = cls


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer(Message):
    """What a forked process has found out.

    Attributes:
        name: of the process: its task, or the kind of request; it is set where it is sent,
        time: as is this, in seconds since the epoch.
    """

    name: str = field(default="", compare=False)
    time: float = field(default=0.0, compare=False)


#: How a job tells the launcher how far it is, in a word, or what it has found out.
Report = Callable[[str | Answer], None]

#: Variables that gRPC takes a proxy from, the first that is set.  It ignores names in capitals.
#: Source: grpc, doc/environment_variables.md.
PROXY_VARIABLES = ("grpc_proxy", "https_proxy", "http_proxy")


@dataclass(frozen=True, slots=True, kw_only=True)
class Listening(Answer):
    """Others can call at a port: of a stream, bursts, traffic or calls."""

    port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceiveStream(Message):
    """Fork a process that takes in bytes from its senders and reports their rate, all together.

    Attributes:
        token: what a sender says first.
    """

    address: str
    token: str
    senders: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamReceived(Answer):
    """Bytes and nanoseconds whose quotient is the rate of all streams together."""

    num_bytes: int
    ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SendStream(Message):
    """Fork a process that sends bytes to a `ReceiveStream` for some seconds."""

    address: str
    port: int
    token: str
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamSent(Answer):
    """The median time that a byte took there and back."""

    round_trip_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TakeBursts(Message):
    """Fork a process that has several hosts send to it at the same moments, for some seconds.

    Attributes:
        token: what a sender says first.
    """

    address: str
    token: str
    senders: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SendBursts(Message):
    """Fork a process that sends to a `TakeBursts` whenever that asks, and counts what was lost."""

    address: str
    port: int
    token: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BurstsSent(Answer):
    """What a sender's TCP counted meanwhile; None if it cannot be asked."""

    congestion: str
    tcp: TcpCounters | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceiveTraffic(Message):
    """Fork a process that takes in background traffic until it is ended.

    Attributes:
        task: the name of the process, as that of a `StartTask`.
    """

    task: str
    address: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TrafficCarried(Answer):
    """Bytes that a receiver has taken in so far."""

    num_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SendTraffic(Message):
    """Fork a process that sends background traffic to a `ReceiveTraffic` until it is ended.

    Attributes:
        task: the name of the process.
        bits_per_s: payload.
    """

    task: str
    address: str
    port: int
    bits_per_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerCalls(Message):
    """Fork a process that tells every caller the name of its host, until it is ended."""

    address: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """Another host, as this host should find it.

    Attributes:
        host: its name, as the launcher calls it.
        name: its name, as it calls itself.
        address, port: where it answers calls.
    """

    host: str
    name: str
    address: str
    port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckHost(Message):
    """Fork a process that looks at its host, and from there at the others."""

    peers: tuple[Peer, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareFile(Message):
    """Fork a process that writes a file called `own` and waits for those of the others.

    Attributes:
        folder: that all hosts should see.
        within_s: how long it waits.
    """

    folder: str
    own: str
    others: tuple[str, ...]
    within_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class FilesShared(Answer):
    """When a host wrote its file, and saw those of others: nanoseconds of its clock.

    Attributes:
        problem: why it could not write its own; empty if it could.
        seen: by the host whose file it is.
    """

    written_ns: int | None = None
    problem: str = ""
    seen: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class CountGpus(Message):
    """Fork a process that counts the GPUs that CUDA shows it; CUDA_VISIBLE_DEVICES is `visible`."""

    visible: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GpusCounted(Answer):
    """How many there are, and why there are not more; empty if nothing is wrong."""

    count: int
    problem: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MultiplyMatrices(Message):
    """Fork a process that multiplies square matrices for some seconds, on all its cores."""

    size: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class MatricesMultiplied(Answer):
    """The median time of one product."""

    ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerSeen:
    """How one host sees another.

    Attributes:
        resolved: addresses that the other's name leads to; none if it is not known.
        reverse: names that the other's address leads to; none if it has none.
        lookup_s: time that both took.
        unreached: why the other cannot be reached at its address; empty if it can.
    """

    resolved: tuple[str, ...] = ()
    reverse: tuple[str, ...] = ()
    lookup_s: float = 0.0
    unreached: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TemporaryFolder:
    """Where a host keeps the files of a run.

    Attributes:
        asked: what TMPDIR says; empty if it says nothing.
        file_system: its type, as `ext4` or `nfs4`.
        problem: why it cannot be written; empty if it can.
    """

    path: str
    asked: str
    file_system: str
    free_bytes: int
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostState(Answer):
    """What a host finds when it looks at itself and at the others.

    Attributes:
        busy_share: of the cores that may be used here, the share in use before anything began.
        free_bytes: memory that is available.
        memory_limit_bytes: of the control group; None without one.
        open_files: how many files and connections a process may have open.
        addresses: all of this host, of both families, without the loopback's.
        digest: of the measured program's source files.
        proxies: that gRPC would obey: host and port by the name of the variable.
        user_site: folder of the user's own packages, if Python looks there; else empty.
        user_modules: that were imported from there.
        outside_modules: that were imported from neither the environment nor the checkout.
        locked: the environment was made from the suite's lock file.
        temporary: folder of a run's files.
        peers: the other hosts, by name.
    """

    busy_share: float
    free_bytes: int
    memory_limit_bytes: int | None = None
    open_files: int
    addresses: tuple[str, ...] = ()
    digest: str
    proxies: Mapping[str, str] = field(default_factory=dict)
    user_site: str = ""
    user_modules: tuple[str, ...] = ()
    outside_modules: tuple[str, ...] = ()
    locked: bool = True
    temporary: TemporaryFolder
    peers: Mapping[str, PeerSeen] = field(default_factory=dict)


def grpc_proxies(environment: Mapping[str, str]) -> dict[str, str]:
    """Host and port of every proxy that gRPC would obey, without names and passwords."""
    return {name: _place(environment[name]) for name in PROXY_VARIABLES if environment.get(name)}


def _place(proxy: str) -> str:
    return proxy.rpartition("://")[2].partition("/")[0].rpartition("@")[2]
