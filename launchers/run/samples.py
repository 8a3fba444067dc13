"""What the samples of a run tell of its hosts.

Decides which load was there before the run, how busy a machine that emulates hosts was, and what
GPUs below the clocks that they could have are worth: a warning.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ps_allreduce.record.hosts import THROTTLING, GpuSample, HostRecord
from ps_allreduce.record.records import Sample

#: So many GPUs are named; a large job may have hundreds.
MOST_NAMED = 3


def with_loads(hosts: Sequence[HostRecord], samples: Sequence[Sample]) -> tuple[HostRecord, ...]:
    """Hosts with the load that the first look at each found: most of it was there before."""
    first = {sample.host: sample.load_average for sample in reversed(samples)}
    return tuple(replace(host, load_average=first.get(host.facts.name)) for host in hosts)


def throttling_warnings(
    samples: Sequence[Sample],
    window: tuple[float, float],
    offsets: Mapping[str, float],
    used: frozenset[str],
) -> tuple[str, ...]:
    """One sentence for every reason for which GPUs were slowed down inside a window.

    Args:
        window: on the launcher's clock.
        offsets: seconds by which a host's clock is ahead of the launcher's, by its own name.
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
