"""What is known of a host and of its GPUs: what it says of itself, and its part in a run.

Decides which facts make hosts alike, and which reasons for low clocks slow a run down.  Collecting
is the business of `inspection`, choosing among the addresses that of the launchers.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields

from ps_allreduce.serialization import Columns, column

#: Reasons for clocks below the highest, by NVML's bit.  Source: NVML API reference, group
#: nvmlClocksEventReasons.
REASONS: Mapping[int, str] = {
    0x01: "gpu_idle",
    0x02: "applications_clocks_setting",
    0x04: "sw_power_cap",
    0x08: "hw_slowdown",
    0x10: "sync_boost",
    0x20: "sw_thermal_slowdown",
    0x40: "hw_thermal_slowdown",
    0x80: "hw_power_brake_slowdown",
    0x100: "display_clock_setting",
}

#: Those that slow a busy GPU down against anybody's will, in plain words.
THROTTLING: Mapping[str, str] = {
    "sw_power_cap": "its power cap",
    "hw_slowdown": "its hardware's slowdown",
    "sw_thermal_slowdown": "its temperature",
    "hw_thermal_slowdown": "its temperature (hardware)",
    "hw_power_brake_slowdown": "an external power brake",
}

#: An import of TensorFlow from a shared file system in a bad mood; one that is well takes three to
#: ten seconds.
SLOW_IMPORT_S = 30.0

#: Share of segments that may be lost, and how many at least are no accident.
LOST_LIMIT = 1e-4
LEAST_LOST = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Interface:
    """A network interface that is up.

    Attributes:
        address: IPv4.
        prefix_length: of the subnet.
        bits_per_s: what the driver states; None if it states nothing.
    """

    name: str
    address: str
    prefix_length: int
    bits_per_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """A GPU that this process may use.

    Attributes:
        identity: as CUDA_VISIBLE_DEVICES names it.
        memory_bytes, driver, compute_capability: as the driver tells; None and empty if it does
            not.
    """

    identity: str
    model: str = ""
    memory_bytes: int | None = None
    driver: str = ""
    compute_capability: str = ""

    @property
    def kind(self) -> tuple[str, int, str, str]:
        """Equal for GPUs of the same make under the same driver."""
        memory_gib = round((self.memory_bytes or 0) / 2**30)
        return self.model, memory_gib, self.driver, self.compute_capability


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuSample:
    """One look at a GPU; None for what it does not tell.

    Attributes:
        identity: as CUDA_VISIBLE_DEVICES names it.
        utilisation: share of the driver's last period in which a kernel ran, 0 to 1.
        memory_bytes: in use, by whatever process.
        sm_mhz, memory_mhz: present clocks, of the processors and of the memory.
        reasons: why the clocks are not higher, of `REASONS`.
    """

    identity: str
    utilisation: float | None = None
    memory_bytes: int | None = None
    sm_mhz: int | None = None
    memory_mhz: int | None = None
    power_w: float | None = None
    temperature_c: int | None = None
    reasons: tuple[str, ...] = ()


def reasons_of(bits: int) -> tuple[str, ...]:
    """The names of the reasons in NVML's bit mask; bits that are new to us are left out."""
    return tuple(name for bit, name in REASONS.items() if bits & bit)


@dataclass(frozen=True, slots=True, kw_only=True)
class TcpCounters(Columns):
    """TCP segments of all connections of a host, those of other programs included.

    A host is a network namespace here: emulated hosts of one machine count for themselves.

    Attributes:
        sent: for the first time, bare acknowledgements among them.
        sent_again: of any cause.
        probes: tail loss probes.  On a network that loses nothing most of `sent_again` are these.
        timeouts: of the retransmission timer.

    Source: Linux, net/ipv4/proc.c (OutSegs, RetransSegs, TCPLossProbes, TCPTimeouts); RFC 8985,
    section 7, on probes.
    """

    sent: int = field(metadata=column("segments_sent"))
    sent_again: int = field(metadata=column("segments_sent_again"))
    probes: int = field(metadata=column("loss_probes"))
    timeouts: int = field(metadata=column("tcp_timeouts"))

    def __post_init__(self) -> None:
        if min(self.sent, self.sent_again, self.probes, self.timeouts) < 0:
            raise ValueError(f"a counter of segments below 0: {self}")

    @property
    def lost(self) -> int:
        """How many segments were lost, about: a probe may also send one for the first time."""
        return max(0, self.sent_again - self.probes)

    @property
    def is_lossy(self) -> bool:
        """More was lost than on a network that has room for what is sent."""
        return self.lost >= LEAST_LOST and self.lost > LOST_LIMIT * self.sent

    def since(self, earlier: TcpCounters) -> TcpCounters | None:
        """What was counted since an earlier look; None if a counter has begun anew."""
        passed = {f.name: getattr(self, f.name) - getattr(earlier, f.name) for f in fields(self)}
        return TcpCounters(**passed) if min(passed.values()) >= 0 else None

    @classmethod
    def together(cls, counters: Sequence[TcpCounters]) -> TcpCounters:
        """The sums over some hosts."""
        return cls(**{f.name: sum(getattr(one, f.name) for one in counters) for f in fields(cls)})


@dataclass(frozen=True, slots=True, kw_only=True)
class HostFacts:
    """What a fork server sees around itself.

    Attributes:
        name: the host name, as the host calls itself.
        scheduler_name: as the scheduler calls it, empty without one.
        machine: identifies the running system; the same for hosts that share one.
        cores: processors that may be used here; on a cluster those that the step was given.
        processor_quota: how many processors' time control groups allow there; None without a limit.
        switch: path of switches above the host, as the scheduler tells it; empty if it does not.
        versions: of Python and the packages that matter.
        congestion: the TCP congestion control that connections begin with; empty where the host
            does not tell, or an emulated network states it.
    """

    name: str
    scheduler_name: str = ""
    machine: str = ""
    interfaces: tuple[Interface, ...] = ()
    cores: tuple[int, ...]
    processor_quota: float | None = None
    gpus: tuple[Gpu, ...] = ()
    cpu_model: str
    cpu_flags: tuple[str, ...]
    memory_bytes: int
    switch: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    congestion: str = ""

    @property
    def kind(self) -> str:
        """Eight digits; equal for hosts of the same hardware and software."""
        alike = {
            "num_cores": len(self.cores),
            "gpus": [gpu.kind for gpu in self.gpus],
            "cpu_model": self.cpu_model,
            "cpu_flags": self.cpu_flags,
            # Firmware takes some memory, and not everywhere the same.
            "memory_gib": round(self.memory_bytes / 2**30),
            "versions": self.versions,
            "congestion": self.congestion,
        }
        return hashlib.sha256(json.dumps(alike, sort_keys=True).encode()).hexdigest()[:8]


@dataclass(frozen=True, slots=True, kw_only=True)
class HostRecord:
    """A host's part in a run.

    Attributes:
        address: of its tasks in the cluster specification, without the port.
        interface: that has this address; None if no interface of the host has it.
        clock_offset_s: of its wall clock against the launcher's, removed from all timings.
        import_s: time in which its fork server imported TensorFlow.
        load_average: of one minute, at the first look of the run; None if there was no look.
        foreign_load, stolen_load: shares of the time of its cores that others, and the hypervisor,
            used in the measured window; None where samples do not tell.
        tcp: what its TCP sent around the measured window; None where samples do not tell.
    """

    name: str
    address: str
    interface: Interface | None = None
    clock_offset_s: float = 0.0
    import_s: float | None = None
    load_average: float | None = None
    foreign_load: float | None = None
    stolen_load: float | None = None
    tcp: TcpCounters | None = None
    facts: HostFacts


def kinds(hosts: Sequence[HostFacts]) -> dict[str, list[str]]:
    """Names of the hosts of every kind, in the order of the hosts."""
    found: dict[str, list[str]] = {}
    for host in hosts:
        found.setdefault(host.kind, []).append(host.name)
    return found


def describe_difference(one: HostFacts, other: HostFacts) -> str:
    """What sets two hosts apart, in words."""
    return "; ".join(f"{name} {own} and {its}" for name, own, its in facts_apart(one, other))


def facts_apart(one: HostFacts, other: HostFacts) -> list[tuple[str, object, object]]:
    """What sets two hosts apart: the names of facts, and both values of each."""
    first, second = _comparable(one), _comparable(other)
    return [(name, own, second[name]) for name, own in first.items() if own != second[name]]


def _comparable(host: HostFacts) -> dict[str, object]:
    """Its facts, with GPUs by their kind: each has an identity of its own."""
    return {
        "cpu_model": host.cpu_model,
        "cpu_flags": list(host.cpu_flags),
        "memory_bytes": host.memory_bytes,
        "versions": host.versions,
        "congestion": host.congestion,
        "gpus": [" ".join(map(str, gpu.kind)) for gpu in host.gpus],
        "cores": list(host.cores),
    }
