"""What the figures of a case are about, and what casts doubt on them, as sentences.

Decides which doubts a reader is told of before any figure: shared machines, busy machines, hosts
that differ, attempts that did not end well.  Whether a difference was shown is said in `verdict`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from analysis.data.cases import Case, machine_was_limit
from analysis.derive.efficiency import base_of_single
from analysis.stats.statistics import estimate
from analysis.wording import count_text
from ps_allreduce.record.hosts import kinds
from ps_allreduce.record.records import BUSY_LIMIT, RunRecord, Status

#: Load average per processor above which a run's start is called busy.  A run of its own leaves
#: about one.
BUSY = 2.0

_HOSTS = {
    "local": "This is about processes that share one machine's cores over loopback; it says "
    "nothing about a cluster's network.",
    "emulated": "Hosts are emulated: they share one machine's processors and memory, and only "
    "their links are like those of a cluster. It says something about traffic on such links, and "
    "nothing about a cluster's processors.",
}
_EMULATED = (
    "Compute is emulated: forward and backward passes take a stated time and use no processor, so "
    "images/sec are those of no real accelerator."
)


def circumstances(case: Case) -> list[str]:
    """What kind of hosts and compute the figures are of, and the doubts about them."""
    launcher = case.conditions.launcher
    lines = [_HOSTS[launcher]] if launcher in _HOSTS else []
    if case.emulated:
        lines.append(_EMULATED)
    lines += busy_lines(case.records)
    marked = [point for point in case.points if point.oversubscribed]
    if marked and not case.emulated:
        lines.append(
            f"{len(marked)} of {len(case.points)} points had fewer cores than their tasks use "
            "(oversubscribed): no efficiency is claimed from them."
        )
    launches = [record for point in case.points for record in point.launches.values()]
    lines += _machine_lines(launches) + _interface_lines(launches) + mixed_lines(launches)
    return lines + _job_lines(case)


def busy_lines(records: Sequence[RunRecord]) -> list[str]:
    """How many runs began on a busy machine; some of the load is what the run before left."""
    busy = [
        record
        for record in records
        if record.provenance.load_average > BUSY * len(record.provenance.affinity)
    ]
    if not busy:
        return []
    return [
        f"{len(busy)} of {len(records)} runs began with a load average above {BUSY:g} per "
        "processor: other work may have disturbed them (the runs before count too)."
    ]


def _machine_lines(launches: Sequence[RunRecord]) -> list[str]:
    """Where the one machine below emulated hosts may have been the limit."""
    limited = [record for record in launches if machine_was_limit(record)]
    if not limited:
        return []
    unknown = sum(1 for record in limited if record.machine_busy is None)
    more = f" (in {unknown} of these the window was too short to tell)" if unknown else ""
    return [
        f"In {len(limited)} of {len(launches)} runs this machine's processors were "
        f"{BUSY_LIMIT:.0%} busy or more{more}: they may have been the limit, not the emulated "
        "network. Points with such runs are marked + and no efficiency is claimed from them."
    ]


def _interface_lines(launches: Sequence[RunRecord]) -> list[str]:
    """Whether the launcher chose one interface for some runs and another one for others."""
    found = dict.fromkeys(record.interface for record in launches if len(record.hosts) > 1)
    names = [name for name in found if name is not None]
    if len(names) < 2:
        return []
    return [
        f"Runs used different interfaces ({', '.join(names)}), so differences between them may be "
        "those of the networks: choose one with --interface."
    ]


def _job_lines(case: Case) -> list[str]:
    """How far the base tells the jobs of a sweep apart; empty where not several measured it."""
    base = base_of_single(case)
    if base is None:
        return []
    rates: dict[str, list[float]] = {}
    for number, rate in base.rates.items():
        if job_id := base.launches[number].job_id:
            rates.setdefault(job_id, []).append(rate)
    if len(rates) < 2:
        return []
    others = {record.job_id for record in case.records if record.job_id is not None} - set(rates)
    without = f" {count_text(len(others), 'other job')} had no base." if others else ""
    means = [estimate(found).mean for found in rates.values()]
    listed = ", ".join(f"{mean:.4g}" for mean in means)
    return [
        f"The base, a single worker, was measured in {len(rates)} jobs: {listed} images/s, up to "
        f"{max(means) / min(means) - 1:.0%} apart. Points of different jobs may differ by that "
        f"much for no reason of their own.{without}"
    ]


def mixed_lines(records: Sequence[RunRecord]) -> list[str]:
    """How many runs had hosts of different kinds, with the hosts of each kind in one of them."""
    found = [kinds([host.facts for host in record.hosts]) for record in records]
    mixed = [one for one in found if len(one) > 1]
    if not mixed:
        return []
    example = "; ".join(", ".join(names) for names in mixed[0].values())
    return [
        f"Hosts of different kinds took part in {len(mixed)} of {count_text(len(records), 'run')} "
        f"(kinds in one of them: {example}): synchronous training waits for the slowest."
    ]


def attempts_lines(records: Iterable[RunRecord]) -> list[str]:
    """How many attempts did not end well, and the commonest reason; empty if all did."""
    attempts = list(records)
    bad = [record for record in attempts if record.status is not Status.OK]
    if not bad:
        return []
    reason, times = Counter(record.reason for record in bad).most_common(1)[0]
    return [
        f"Of {len(attempts)} attempts {len(attempts) - len(bad)} ended well: {status_text(bad)}. "
        f"Commonest reason ({times} of {len(bad)}): {reason}"
    ]


def status_text(records: Sequence[RunRecord]) -> str:
    """`2 failed, 1 timed out`, in the order of the statuses."""
    counts = Counter(record.status for record in records)
    return ", ".join(
        f"{counts[status]} {status.value.replace('_', ' ')}" for status in Status if counts[status]
    )
