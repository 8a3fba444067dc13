"""What a fork server finds on its host, and one look at the host and at the tasks on it.

Decides where each fact and each counter comes from, not what is made of it.  Decides also who the
others are whose use of processors is told.  The kernel knows exactly how long each process ran.
How long processors were not idle tells less: they also serve interrupts, of the network above all.
"""

from __future__ import annotations

import ipaddress
import os
import platform
import socket
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from ps_allreduce.inspection.gpu import find_gpus
from ps_allreduce.kernel_files import GROUPS, processor_quota, read_text, usable_cores
from ps_allreduce.record.hosts import GpuSample, HostFacts, Interface, TcpCounters
from ps_allreduce.record.provenance import (
    PACKAGES,
    default_congestion,
    package_versions,
    parse_cpuinfo,
    running_system,
)
from ps_allreduce.record.records import Sample

#: Of the namespace of this process.
NET = Path("/proc/self/net")

#: As `TcpCounters` has them.
TCP_COUNTERS = ("OutSegs", "RetransSegs", "TCPLossProbes", "TCPTimeouts")


def look_around(environment: Mapping[str, str], nvml: Any | None = None) -> HostFacts:
    """Describe this host as this process sees it.

    Args:
        nvml: as `inspection.gpu` loads it; None without a driver that answers.
    """
    model, flags = parse_cpuinfo(read_text(Path("/proc/cpuinfo")))
    return HostFacts(
        name=socket.gethostname(),
        scheduler_name=environment.get("SLURMD_NODENAME", ""),
        machine=running_system(),
        interfaces=interfaces(),
        cores=usable_cores(),
        processor_quota=processor_quota(*GROUPS),
        gpus=() if nvml is None else find_gpus(nvml, environment.get("CUDA_VISIBLE_DEVICES")),
        cpu_model=model,
        cpu_flags=flags,
        memory_bytes=psutil.virtual_memory().total,
        switch=environment.get("SLURM_TOPOLOGY_ADDR", ""),
        versions=package_versions(PACKAGES) | {"kernel": platform.release()},
        congestion=default_congestion(),
    )


def interfaces() -> tuple[Interface, ...]:
    """Interfaces that are up and have an IPv4 address, in the kernel's order."""
    stats = psutil.net_if_stats()
    return tuple(
        Interface(
            name=name,
            address=address.address,
            # A link from one point to another states no netmask.
            prefix_length=ipaddress.ip_network(f"0.0.0.0/{address.netmask or 32}").prefixlen,
            # Virtual interfaces state 10 Gbit/s or nothing, whatever they carry.
            bits_per_s=stats[name].speed * 1e6 or None,
        )
        for name, addresses in psutil.net_if_addrs().items()
        for address in addresses
        if address.family is socket.AF_INET and name in stats and stats[name].isup
    )


def take_sample(
    now: float,
    processes: Mapping[str, psutil.Process],
    gpus: tuple[GpuSample, ...],
    others_s: float | None = None,
) -> Sample:
    """Processor and memory of the processes, this host's network counters, and its GPUs.

    Args:
        now: seconds since the epoch.
        processes: by task, all that this process has forked and not yet reaped; those that are gone
            are left out.
        others_s: as `OtherProcesses` tells at this moment.
    """
    cores = _core_times()  # first, because they belong to that moment
    ours = os.times()  # with what was reaped
    ours_s = ours.user + ours.system + ours.children_user + ours.children_system
    loads = _loads(processes)
    counters = psutil.net_io_counters(pernic=True)
    idle_s = sum(core.idle + core.iowait for core in cores)
    # The time of users contains that of guests.
    total_s = sum(sum(core) - core.guest - core.guest_nice for core in cores)
    return Sample(
        time=now,
        host=socket.gethostname(),
        busy_s=total_s - idle_s,
        idle_s=idle_s,
        interrupts_s=sum(core.irq + core.softirq for core in cores),
        stolen_s=sum(core.steal for core in cores),
        suite_s=ours_s + sum(load.cpu_s + load.reaped_s for load in loads.values()),
        others_s=others_s,
        load_average=os.getloadavg()[0],
        cpu_s={name: load.cpu_s for name, load in loads.items()},
        memory_bytes={name: load.memory_bytes for name, load in loads.items()},
        sent_bytes={name: nic.bytes_sent for name, nic in counters.items()},
        received_bytes={name: nic.bytes_recv for name, nic in counters.items()},
        gpus=gpus,
        tcp=look_at_tcp(),
    )


def look_at_tcp() -> TcpCounters | None:
    """What TCP has counted in the network namespace of this process; None if it does not tell."""
    return parse_tcp(read_text(NET / "snmp"), read_text(NET / "netstat"))


def parse_tcp(snmp: str, netstat: str) -> TcpCounters | None:
    """The counters in the texts of /proc/net/snmp and /proc/net/netstat; None if one is missing."""
    told = _counters("Tcp", snmp) | _counters("TcpExt", netstat)
    numbers = [told.get(name, "") for name in TCP_COUNTERS]
    if not all(number.isdecimal() for number in numbers):
        return None
    sent, sent_again, probes, timeouts = map(int, numbers)
    return TcpCounters(sent=sent, sent_again=sent_again, probes=probes, timeouts=timeouts)


def _counters(family: str, text: str) -> dict[str, str]:
    """Numbers by their names: a line of names, then one of numbers, each after the family's."""
    rows = [line.split() for line in text.splitlines() if line.startswith(f"{family}:")]
    return dict(zip(*rows, strict=False)) if len(rows) == 2 else {}


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessLoad:
    """Processor time of a process, that of its children that it has reaped, and its memory."""

    cpu_s: float
    reaped_s: float
    memory_bytes: int


def _loads(processes: Mapping[str, psutil.Process]) -> dict[str, ProcessLoad]:
    """Of all that are still there."""
    loads = {}
    for name, process in processes.items():
        with suppress(psutil.Error), process.oneshot():
            times, memory = process.cpu_times(), process.memory_info()
            reaped_s = times.children_user + times.children_system
            loads[name] = ProcessLoad(
                cpu_s=times.user + times.system, reaped_s=reaped_s, memory_bytes=memory.rss
            )
    return loads


def _core_times() -> list[Any]:
    """The kernel's account of each core that this process may use."""
    times = psutil.cpu_times(percpu=True)
    usable = usable_cores()
    return [core for number, core in enumerate(times) if number in usable] or times


#: Looks may take so much of one processor's time.
COST_LIMIT = 0.001

TICKS_PER_S = os.sysconf("SC_CLK_TCK")


@dataclass(slots=True)
class OtherProcesses:
    """Looks at the processes of others, as often as it may cost.

    Attributes:
        fork_servers: of all hosts on this machine, by their process numbers; empty where another
            one of these looks.
        proc: where the kernel tells of processes.
        used_s: by others since the first look.
        last_s: what they had used at the last look; None before the first.
        next_look: not before, in seconds of the monotonic clock.
    """

    fork_servers: Collection[int] = ()
    proc: Path = Path("/proc")
    used_s: float = 0.0
    last_s: float | None = None
    next_look: float = 0.0

    def look(self) -> float | None:
        """Processor seconds since the first look; None if there was no look, or it tells nothing.

        It tells nothing where processes may be hidden, as in a container, or use other processors
        than this one may.
        """
        in_part = len(usable_cores()) < (os.cpu_count() or 1)
        if not self.fork_servers or in_part or time.monotonic() < self.next_look:
            return None
        begin = time.thread_time()
        now_s = others_s(self.proc, self.fork_servers)
        self.next_look = time.monotonic() + (time.thread_time() - begin) / COST_LIMIT
        if now_s is None:
            return None
        # The sum only falls if a process has ended that nobody waited for.
        self.used_s += max(0.0, now_s - (now_s if self.last_s is None else self.last_s))
        self.last_s = now_s
        return self.used_s


def others_s(proc: Path, fork_servers: Collection[int]) -> float | None:
    """Processor seconds of all processes but fork servers and those below, with ended children's.

    A process that ends leaves its time to the one that waits for it, so none is lost between two
    looks.  Threads of the kernel are nobody's: most of their work is the network's.

    Returns:
        None where some may be hidden.  All threads of the kernel descend from process 2: who sees
        that one sees all.
    """
    threads = {"2", *read_text(proc / "2/task/2/children").split()}
    if len(threads) == 1 or read_text(proc / "2/comm") != "kthreadd\n":
        return None
    names = (name for name in os.listdir(proc) if name.isdecimal() and name not in threads)
    stats = {int(name): stat for name in names if (stat := _numbers(f"{proc}/{name}/stat"))}
    parents = {process: int(stat[1]) for process, stat in stats.items()}
    # In user and kernel mode, and the same of children that it has waited for.
    ticks = {process: sum(map(int, stat[11:15])) for process, stat in stats.items()}
    ours = set(fork_servers)
    others = (process for process in ticks if ours.isdisjoint(_line(process, parents)))
    return sum(ticks[process] for process in others) / TICKS_PER_S


def _numbers(stat: str) -> list[bytes]:
    """What the kernel tells of a process, after its name; nothing if the process is gone."""
    text = b""
    with suppress(OSError):  # files of this kind take three times as long with `Path`
        file = os.open(stat, os.O_RDONLY)
        try:
            text = os.read(file, 4096)
        finally:
            os.close(file)
    return text.rpartition(b")")[2].split()


def _line(process: int, parents: Mapping[int, int]) -> Iterator[int]:
    """A process, and those above it that are there."""
    while process in parents:
        yield process
        process = parents[process]
