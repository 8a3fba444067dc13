"""The doubts that a reader is told of before any figure.

Decides which ones there are: shared machines, busy machines, lost packets, hosts that differ,
attempts that did not end well.  Whether a difference was shown is said in `verdict`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import compress
from typing import Any

import pandas as pd

from analysis.data.blocks import SweepResults
from analysis.data.cases import MARK, Case, Point, processors_may_limit
from analysis.report.what_was_run import differences_text
from analysis.stats.comparisons import Comparison
from analysis.stats.decision import UNSURE, Contest, Outcome, decide
from analysis.stats.doubts import (
    Drift,
    drifts_of,
    explained_text,
    is_disturbed,
    is_uneven,
    jobs_of,
    neighbours_of,
)
from analysis.stats.explained_parts import STALLED_LIMIT, lost_shares, stalled_shares
from analysis.stats.points import (
    base_of,
    base_text,
    mean_rate,
    point_name,
    point_table,
    share_ratio,
)
from analysis.stats.statistics import estimate
from analysis.wording import (
    capital,
    count_text,
    limited_text,
    number,
    percent_text,
    points_text,
    ratio_text,
    taken_text,
    with_interval,
    workers_text,
)
from ps_allreduce.cluster import TaskType
from ps_allreduce.point.layout import num_ps_hosts
from ps_allreduce.point.resources import LayoutKind
from ps_allreduce.record.hosts import LOST_LIMIT, HostFacts, kinds
from ps_allreduce.record.records import (
    BUSY_LOAD,
    RunRecord,
    Status,
)

_ONE_MACHINE = (
    "Processes share one machine's cores over loopback: this says nothing about a cluster's "
    "network."
)
_EMULATED_HOSTS = (
    "Hosts are emulated: they share one machine's processors and memory, and only their links are "
    "like those of a cluster."
)
_EMULATED_COMPUTE = (
    "Compute is emulated: forward and backward passes take at least a stated time and use no "
    "processor, so {unit}/s are those of no real accelerator."
)

_WAITS = "TCP may wait 200 ms or more for a lost packet, so losses may lower these rates."

#: Shares that may not lie above 1, what each is called, and why it may.
_MORE_THAN_CAN_BE = {
    "efficiency_single": (
        "Efficiency",
        "the base, {base}, was slowed down, or they do not do the same work",
    ),
    "fraction": (
        "Fraction of the bound",
        "links carried more in the runs than before them, or runs sent less than is counted",
    ),
}


def circumstances(case: Case) -> list[str]:
    """What kind of hosts and compute the figures are of, and how busy their processors were."""
    lines = []
    if case.conditions["network"] is not None:
        lines.append(_EMULATED_HOSTS)
    elif case.conditions["asked_workers_per_host"] is None:
        lines.append(_ONE_MACHINE)
    if case.emulated:
        lines.append(_EMULATED_COMPUTE.format(unit=case.unit))
        lines += _difference_lines(case.conditions)
    launches = case.launches
    return lines + _processor_lines(launches) + _interface_lines(case)


def doubts_of_numbers(case: Case) -> list[str]:
    """The doubts about numbers of the table, which stand beside it on the screen, too."""
    of_hosts = [*_mixed_lines(case), *_other_base_lines(case), *_job_lines(case)]
    of_hosts += busy_lines(case)
    return [*of_hosts, *loss_lines(case), *share_lines(case), *above_one_lines(case)]


def unfinished_text(results: SweepResults) -> str:
    """How many planned runs are not made yet, and how many of them no table has a row for."""
    begun = set(results.block.table["experiment_id"])
    unseen = sum(key.partition("/")[0] not in begun for key in results.missing)
    missing = count_text(len(results.missing), "planned run")
    verb = "is" if len(results.missing) == 1 else "are"
    several = f"{unseen} of them " * (unseen < len(results.missing))
    also = f", {several}at points that no table shows" if unseen else ""
    unread = ", or not readable," * bool(results.files.damaged)
    return (
        f"{missing} {verb} not made yet{unread} with this machine, software and measured "
        f"program{also}."
    )


def _difference_lines(own: Mapping[str, Any]) -> list[str]:
    """What follows where emulated workers were asked to differ."""
    differences = differences_text(own)
    if not differences:
        return []
    return [
        f"Emulated workers differ as asked ({differences}): synchronous training waits for the "
        "slowest."
    ]


def busy_lines(case: Case) -> list[str]:
    """Which measured runs others disturbed; the load average counts where that is not known."""
    lines, points, records = [], [], []
    for point in case.points:
        own = [record for record in point.records if record.metrics is not None]
        records += own
        points += [point_name(point)] * len(own)
    loads = {
        "other programs": [record.foreign_load for record in records],
        "the hypervisor": [record.stolen_load for record in records],
    }
    if told := taken_text(loads, count_text(len(records), "run"), points):
        again = "Measure again in another RESULTS folder when nothing else runs."
        lines.append(f"{told} {again}")
    busy = [record.began_busy for record in records]
    if any(busy):
        lines.append(
            f"{sum(busy)} of {len(records)} runs began with a load average above {BUSY_LOAD:g} per "
            f"processor{points_text(points, busy)}. What others used while they were measured is "
            "not known. Other programs may have slowed them down; a part of that load may also be "
            "left of the run just before."
        )
    return lines


def _processor_lines(launches: pd.DataFrame) -> list[str]:
    """Where processors may have been the limit, and whether that was measured."""
    limited = launches[processors_may_limit(launches)]
    unknown, runs = int(limited["busy"].isna().sum()), count_text(len(launches), "run")
    told = [*filter(None, [limited_text(len(limited) - unknown, runs)])]
    if unknown:
        told.append(
            f"In {unknown} of {runs}, processors may have been the limit: tasks had fewer cores "
            "than they use, and how busy these were is not known."
        )
    marked = f"Results mark such points {MARK}."
    return [" ".join(filter(None, [*told, marked]))] if told else []


def loss_lines(case: Case) -> list[str]:
    """Which runs lost packets, and which stalled."""
    lost, stalled = lost_shares(case.launches), stalled_shares(case.launches)
    points = [point_name(point) for point in case.points for _ in point.launches.index]
    runs, lines = count_text(len(lost), "run"), []
    if lost.any():
        lines.append(
            f"{(lost > 0.0).sum()} of {runs} lost more than {LOST_LIMIT:.2%} of their "
            f"hosts' TCP segments (up to {percent_text(lost.max(), LOST_LIMIT, 2)}"
            f"{points_text(points, lost > 0.0)}). "
            f"{_WAITS}"
        )
    if stalled.any():
        both, several = ((lost > 0.0) & (stalled > 0.0)).sum(), (stalled > 0.0).sum()
        told = int(case.launches["stalled_s"].notna().sum())
        known = f"known of {told}; " * (told < len(stalled))
        lines.append(
            f"{several} of {runs} stalled for more than {STALLED_LIMIT:.0%} of their "
            f"time ({known}up to {percent_text(stalled.max(), STALLED_LIMIT)}"
            f"{points_text(points, stalled > 0.0)}). Known to have lost more than {LOST_LIMIT:.2%} "
            f"of the segments: {_of_these(both, several)}."
        )
    return lines


def _of_these(some: int, every: int) -> str:
    """Of runs, `none of these`, `2 of these 3`."""
    known = {0: "none of these", every: "all of these" if every > 1 else "this one"}
    return known.get(some, f"{some} of these {every}")


def share_lines(case: Case) -> list[str]:
    """At how many points one worker made the others' steps, and the rate at equal shares."""
    uneven = [point for point in case.points if is_uneven(point)]
    if not uneven:
        return []
    worst = max(uneven, key=_largest_share)
    # Of whole steps, and the slowest worker makes few: more digits say more than is known.
    equal = float(f"{estimate(worst.known('equal_shares_per_sec')).mean:.2g}")
    listed = "; ".join(
        f"{point_name(point)}: up to {_largest_share(point):.0%}" for point in uneven
    )
    where = f"At {point_name(worst)}, " * (len(uneven) > 1)
    return [
        f"One worker made far more steps than others ({listed} of all). Such rates are not ranked. "
        f"{where}{worst.num_workers} workers as slow as the slowest one would make about "
        f"{number(equal)} {case.unit}/s; {number(mean_rate(worst))} were made."
        f"{_evener_text(case, worst)}"
    ]


def _largest_share(point: Point) -> float:
    """Of all steps of a launch, that one worker made; the most of any launch."""
    return float(point.known("largest_share").max())


def _evener_text(case: Case, uneven: Point) -> str:
    """What may even the shares: other hosts help where some workers only have a server beside.

    A bound that was measured beside it says more.
    """
    asked, hosts = uneven.asked, uneven.common("num_hosts") or 1
    strategy = uneven.setting.strategy
    own = [point for point in case.points if point.setting.strategy == strategy]
    is_bounded = any(point.asked["staleness"] is not None for point in own)
    bound = asked["steps_per_dispatch"] or 1  # a smaller one leaves no room for these steps
    ways = {
        "servers on hosts of their own (--layout dedicated)": hosts > 1
        and asked["layout"] == LayoutKind.COLOCATED
        and uneven.experiment.num_ps % hosts > 0,
        f"bounded staleness (--staleness {bound})": not (
            uneven.setting.traits.as_shipped or is_bounded
        ),
    }
    told = " or ".join(way for way, may in ways.items() if may)
    return f" {capital(told)} may help." if told else ""


def above_one_lines(case: Case) -> Iterator[str]:
    """Shares above 1 by the rule of decision, which is more than can be, and what may be why.

    Of many points some have an interval above 1 by chance, so all are decided together.
    """
    table = point_table(case)
    for share, (name, why) in _MORE_THAN_CAN_BE.items():
        tested = table[f"{share}_low"].notna()
        ratios = [share_ratio(case, point, share) for point in compress(case.points, tested)]
        decided = decide([Contest(comparisons=((each,),)) for each in ratios])
        told = [
            f"{row['setting']} at {workers_text(int(row['num_workers']))} "
            f"{ratio_text(row[share], row[f'{share}_low'], row[f'{share}_high'])}"
            for (_, row), each in zip(table[tested].iterrows(), decided, strict=True)
            if each.outcome is Outcome.FASTER
        ]
        if told:
            why = why.format(base=base_text(case))
            yield f"{name} above 1: {'; '.join(told)}. Perhaps {why}."


def _interface_lines(case: Case) -> list[str]:
    """Whether the launcher chose one interface for some runs and another one for others.

    One that was asked for by its subnet may have several names on one network.
    """
    if case.conditions["asked_interface"] is not None:
        return []
    launches = case.launches
    names = launches.loc[(launches["num_hosts"] > 1).fillna(False), "interface"].dropna().unique()
    if len(names) < 2:
        return []
    return [
        f"Runs used different interfaces ({', '.join(names)}), so differences between them may be "
        "those of the networks: choose one with --interface."
    ]


def _job_lines(case: Case) -> list[str]:
    """The base in every job of a sweep; empty where not several measured it."""
    base = base_of(case, case.points[0], "single")
    if base is None:
        return []
    by_job = base.launches.dropna(subset="job_id").groupby("job_id", sort=False)
    rates = {str(job): own["examples_per_sec"].astype(float) for job, own in by_job}
    if len(rates) < 2:
        return []
    others = case.attempts["job_id"].dropna().nunique() - len(rates)
    without = f" {count_text(others, 'other job')} had no base." if others else ""
    listed = ", ".join(
        f"{with_interval(number, *estimate(each).ends)} (job {job})" for job, each in rates.items()
    )
    several = point_table(case)["jobs"].nunique() > 1
    apart = " Points of different jobs may differ because of the jobs alone." * several
    return [
        f"The base ({point_name(base)}) was measured in {len(rates)} jobs: {listed} {case.unit}/s."
        f"{apart}{without}"
    ]


def _mixed_lines(case: Case) -> Iterator[str]:
    """How many runs had hosts of different kinds, with the hosts of each kind."""
    records = [record for point in case.points for record in point.counting]
    by_kind = ([kinds(facts) for facts in _to_be_alike(record)] for record in records)
    mixed = [max(groups, key=len) for groups in by_kind if max(map(len, groups)) > 1]
    if mixed:
        example = " against ".join(", ".join(names) for names in mixed[0].values())
        one = "" if all(each == mixed[0] for each in mixed) else "in one of them "
        yield (
            f"Hosts of different kinds took part in {len(mixed)} of "
            f"{count_text(len(records), 'run')} ({one}{example})."
        )


def _other_base_lines(case: Case) -> Iterator[str]:
    """That hosts of workers are of kinds of which no run of the base was."""
    base = base_of(case, case.points[0], "single")
    if base is None or not base.counting:
        return
    own, every = (
        kinds([facts for point in points for r in point.counting for facts in _to_be_alike(r)[0]])
        for points in ((base,), case.points)
    )
    if own.keys() != every.keys():
        names = ", ".join(dict.fromkeys(name for each in own.values() for name in each))
        yield f"Speed-ups compare kinds of hosts, too: {base.setting.label} ran on {names} only."


def _to_be_alike(record: RunRecord) -> tuple[list[HostFacts], list[HostFacts]]:
    """Hosts of workers, and those named for servers, which may be of another kind."""
    apart = num_ps_hosts(record.experiment) > 0
    servers = {task.host for task in record.tasks if apart and task.task.startswith(TaskType.PS)}
    of_workers, of_servers = (
        [host.facts for host in record.hosts if (host.name in servers) is for_servers]
        for for_servers in (False, True)
    )
    return of_workers, of_servers


def attempts_lines(attempts: pd.DataFrame) -> list[str]:
    """How many attempts did not end well, and the commonest reason, if any; empty if all did."""
    bad = attempts[attempts["status"] != Status.OK]
    if bad.empty:
        return []
    reasons = bad["reason"].value_counts()
    most, name = int(reasons.iloc[0]), "Reason"
    if most < len(bad):
        is_commonest = (reasons == most).sum() == 1
        name = f"{'Commonest' if is_commonest else 'A'} reason ({most} of {len(bad)})"
    return [
        f"{len(attempts) - len(bad)} of {len(attempts)} attempts ended well; {status_text(bad)}. "
        f"{name}: {reasons.index[0]}"
    ]


def status_text(attempts: pd.DataFrame) -> str:
    """`2 failed, 1 timed out`, in the order of the statuses."""
    counts = attempts["status"].value_counts(sort=False)
    return ", ".join(f"{n} {str(name).replace('_', ' ')}" for name, n in counts.items() if n)


def undrifted_lines(case: Case) -> list[str]:
    """That it was not shown that the machine drifted, a line for each job; or why nobody knows."""
    drifts, jobs = drifts_of(case), jobs_of(case)
    lines = [f"{capital(drift.told)}." for drift in drifts if not drift.is_shown]
    if unknown := len(jobs) - len(drifts):
        where = f" in {unknown} of {len(jobs)} jobs" * (len(jobs) > 1)
        undisturbed = "undisturbed " * any(is_disturbed(point).any() for point in case.points)
        lines.append(
            f"Whether the machine drifted{where} is not known: that takes more than three "
            f"{undisturbed}launches of a setting, from the first third of the time to the last."
        )
    return lines


def drift_lines(case: Case, row: Comparison | None) -> list[str]:
    """That the machine drifted, and what that makes of the verdict where this stands.

    Args:
        row: what the headline compares.
    """
    shown = [drift for drift in drifts_of(case) if drift.is_shown]
    if row is None or row.outcome in UNSURE:
        return [f"{capital(drift.told)}." for drift in shown]
    pairs = neighbours_of(case, *row.points, row.metric)
    return [f"{capital(drift.told)}.{_between_text(drift, pairs)}" for drift in shown]


def _between_text(drift: Drift, pairs: pd.DataFrame | None) -> str:
    if pairs is None:
        return ""
    if drift.job and drift.job not in set(pairs["job"]):
        return " The headline compares no launches of this job."
    told = explained_text(drift.between(pairs))
    return f" That may explain {told} between the launches that the headline compares."
