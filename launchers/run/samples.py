"""What the samples of a run tell of its hosts.

Decides which load was there before the run, what others used of the processors inside the measured
window, what TCP sent around it, how busy a machine that emulates hosts was, and what others' load
and GPUs below the clocks that they could have are worth: a warning.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from ps_allreduce.record.hosts import THROTTLING, GpuSample, HostRecord, TcpCounters
from ps_allreduce.record.provenance import running_system
from ps_allreduce.record.records import FOREIGN_LIMIT, Sample

#: So many GPUs are named; a large job may have hundreds.
MOST_NAMED = 3


def with_loads(hosts: Sequence[HostRecord], samples: Sequence[Sample]) -> tuple[HostRecord, ...]:
    """Hosts with the load that the first look at each found: most of it was there before."""
    first = {sample.host: sample.load_average for sample in reversed(samples)}
    return tuple(replace(host, load_average=first.get(host.name)) for host in hosts)


def with_foreign_loads(
    hosts: Sequence[HostRecord],
    samples: Sequence[Sample],
    window: tuple[float, float],
    launcher_s: Mapping[float, float],
) -> tuple[HostRecord, ...]:
    """Hosts with the shares of their processor time that others and the hypervisor used.

    Hosts that share the cores of one machine, as emulated ones do, are those of one suite: what the
    tasks of any of them use is the suite's own.  So is what the launcher uses on its machine, and
    what hosts without tasks use: they are emulated beside the others and carry background traffic.

    Args:
        window: on the launcher's clock.
        launcher_s: processor seconds of this process, by the time of the look.
    """
    together: dict[tuple[str, tuple[int, ...]], list[HostRecord]] = {}
    for host in hosts:
        machine = host.facts.machine or host.facts.name
        together.setdefault((machine, host.facts.cores), []).append(host)
    here, named = running_system(), {host.name for host in hosts}
    carrying = [_looks_at(name, 0.0, samples) for name in {s.host for s in samples} - named]
    known: dict[str, tuple[float, float] | tuple[None, None]] = {}
    for (machine, _), sharing in together.items():
        looks = [_looks_at(h.name, h.clock_offset_s, samples) for h in sharing] + carrying
        own_s = launcher_s if machine == here else {}
        loads = _loads(looks, len(sharing[0].facts.cores), window, own_s)
        known |= dict.fromkeys([host.name for host in sharing], loads)
    return tuple(
        replace(host, foreign_load=known[host.name][0], stolen_load=known[host.name][1])
        for host in hosts
    )


def _looks_at(name: str, offset_s: float, samples: Sequence[Sample]) -> list[Sample]:
    """The samples of a host, on the launcher's clock, which that of the host is ahead of."""
    return [
        replace(sample, time=sample.time - offset_s) for sample in samples if sample.host == name
    ]


def _loads(
    looks: Sequence[Sequence[Sample]],
    num_cores: int,
    window: tuple[float, float],
    launcher_s: Mapping[float, float],
) -> tuple[float, float] | tuple[None, None]:
    """What others and the hypervisor used of some cores; None if samples miss half of the window.

    Where the processes of others cannot all be seen, they used what was neither idle nor known
    otherwise.  Interrupts are nobody's: most of them serve the network, and so the suite.  The
    kernel misses those of idle processors, and counts others as time of the process that they
    interrupt as well; so the load may then be told too high on idle processors, and too low on busy
    ones.

    Args:
        looks: at each host that has these cores.
    """
    if not all(looks) or any(look.suite_s is None for of_host in looks for look in of_host):
        return None, None
    begin = max(window[0], *(of_host[0].time for of_host in looks))
    end = min(window[1], *(of_host[-1].time for of_host in looks))
    if end - begin < (window[1] - window[0]) / 2 or end <= begin:
        return None, None

    def passed(counter: Mapping[float, float]) -> float:
        """How far a counter went on, by its value at some moments."""
        at = np.interp([begin, end], list(counter), list(counter.values()))
        return float(at[1] - at[0])

    total_s = num_cores * (end - begin)
    stolen_s = passed({look.time: look.stolen_s for look in looks[0]})
    own = [launcher_s or {0.0: 0.0}]
    if (others := _others(looks)) and min(others) <= begin and end <= max(others):
        used_s = passed(others)
    else:
        unused_s = passed({look.time: look.idle_s + look.interrupts_s for look in looks[0]})
        used_s = total_s - unused_s - stolen_s
        own += [{look.time: look.suite_s or 0.0 for look in of_host} for of_host in looks]
    return max(0.0, used_s - sum(map(passed, own))) / total_s, stolen_s / total_s


def _others(looks: Sequence[Sequence[Sample]]) -> Mapping[float, float]:
    """What all processes but those of hosts had used, by the time of the look; one host looks."""
    every = (look for of_host in looks for look in of_host)
    return {look.time: look.others_s for look in every if look.others_s is not None}


def with_tcp(
    hosts: Sequence[HostRecord], samples: Sequence[Sample], window: tuple[float, float]
) -> tuple[HostRecord, ...]:
    """Hosts with what their TCP sent, from the last look before a window to the first after it.

    Args:
        window: on the launcher's clock.
    """
    looks = {h.name: _looks_at(h.name, h.clock_offset_s, samples) for h in hosts}
    return tuple(replace(host, tcp=_sent_around(window, looks[host.name])) for host in hosts)


def _sent_around(window: tuple[float, float], looks: Sequence[Sample]) -> TcpCounters | None:
    """None if there is no look before the window, or none after it."""
    before = [look.tcp for look in looks if look.time <= window[0]][-1:]
    after = [look.tcp for look in looks if look.time >= window[1]][:1]
    match [*before, *after]:
        case [TcpCounters() as first, TcpCounters() as last]:
            return last.since(first)
    return None


def load_warnings(hosts: Sequence[HostRecord]) -> tuple[str, ...]:
    """A sentence if others used too much of a host, and one if the hypervisor did."""
    named = {
        "other programs": {host.name: host.foreign_load or 0.0 for host in hosts},
        "the hypervisor": {host.name: host.stolen_load or 0.0 for host in hosts},
    }
    return tuple(
        f"{whoever} took {max(loads.values()):.0%} of the processor time of "
        f"{max(loads, key=lambda name: loads[name])} while measuring"
        for whoever, loads in named.items()
        if max(loads.values(), default=0.0) > FOREIGN_LIMIT
    )


def throttling_warnings(
    samples: Sequence[Sample],
    window: tuple[float, float],
    offsets: Mapping[str, float],
    used: frozenset[str],
) -> tuple[str, ...]:
    """One sentence for every reason for which GPUs were slowed down inside a window.

    Args:
        window: on the launcher's clock.
        offsets: seconds by which a host's clock is ahead of the launcher's, by its name.
        used: identities of the GPUs that tasks of the run used; others do not matter.
    """
    seen: dict[tuple[str, str], list[GpuSample]] = {}
    for sample in samples:
        if window[0] <= sample.time - offsets.get(sample.host, 0.0) <= window[1]:
            for gpu in sample.gpus:
                if gpu.identity in used:
                    seen.setdefault((sample.host, gpu.identity), []).append(gpu)
    return tuple(filter(None, (_sentence(reason, seen) for reason in THROTTLING)))


def _sentence(reason: str, seen: Mapping[tuple[str, str], Sequence[GpuSample]]) -> str:
    """Which GPUs were slowed down, those most of the time first; empty if none was."""
    counts = {gpu: sum(reason in look.reasons for look in looks) for gpu, looks in seen.items()}
    shares = {gpu: count / len(seen[gpu]) for gpu, count in counts.items() if count}
    if not shares:
        return ""
    worst = sorted(shares, key=lambda gpu: -shares[gpu])
    named = [f"{gpu[1]} of {gpu[0]} in {shares[gpu]:.0%}" for gpu in worst[:MOST_NAMED]]
    if len(worst) > MOST_NAMED:
        named.append(f"{len(worst) - MOST_NAMED} more")
    return (
        f"{len(worst)} of {len(seen)} GPUs were slowed down by {THROTTLING[reason]} while "
        f"measuring ({', '.join(named)} of the samples)"
    )


def machine_busy(samples: Sequence[Sample], window: tuple[float, float]) -> float | None:
    """Share of all processor time that was used around a window; None with too few samples.

    From the last sample before the window to the first one after it, as far as there are any.
    Every host that is emulated here sees the same processors: those of the first one are taken.
    """
    of_first = [sample for sample in samples if sample.host == samples[0].host]
    before = [sample for sample in of_first if sample.time <= window[0]][-1:]
    after = [sample for sample in of_first if sample.time >= window[1]][:1]
    inside = [sample for sample in of_first if window[0] < sample.time < window[1]]
    around = [*before, *inside, *after]
    if len(around) < 2:
        return None
    used = around[-1].busy_s - around[0].busy_s
    idle = around[-1].idle_s - around[0].idle_s
    return used / (used + idle) if used + idle > 0 else None
