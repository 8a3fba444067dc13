"""What the figures of a case are about: doubts as sentences, and what was run as items.

Decides which doubts a reader is told of before any figure (shared machines, busy machines, hosts
that differ, attempts that did not end well), and what is said of what the points of a case share:
workload, workers, lengths, and how gradients are exchanged.  What sets points apart is in their
labels (`data.setting`), whether a difference was shown is said in `verdict`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import pandas as pd

from analysis.data.cases import MARK, Case, processors_may_limit
from analysis.data.columns import OPTIMIZER_SETTINGS
from analysis.data.setting import exchange_of
from analysis.stats.points import base_of
from analysis.stats.statistics import estimate
from analysis.wording import count_text
from ps_allreduce.record.hosts import kinds
from ps_allreduce.record.records import (
    BUSY_LIMIT,
    BUSY_LOAD,
    FOREIGN_LIMIT,
    RunRecord,
    Status,
)

#: Columns of the exchange that have a shorter name here.
_SHORT = {"gradients_on_wire": "gradients"}

Items = list[tuple[str, str]]

_ONE_MACHINE = (
    "This is about processes that share one machine's cores over loopback; it says nothing about a "
    "cluster's network."
)
_EMULATED_HOSTS = (
    "Hosts are emulated: they share one machine's processors and memory, and only their links are "
    "like those of a cluster. It says something about traffic on such links, and nothing about a "
    "cluster's processors."
)
_EMULATED_COMPUTE = (
    "Compute is emulated: forward and backward passes take a stated time and use no processor, so "
    "{unit}/sec are those of no real accelerator."
)


def circumstances(case: Case) -> list[str]:
    """What kind of hosts and compute the figures are of, and the doubts about them."""
    lines, points = [], case.points
    if case.conditions["network"] is not None:
        lines.append(_EMULATED_HOSTS)
    elif case.conditions["asked_workers_per_host"] is None:
        lines.append(_ONE_MACHINE)
    if case.emulated:
        lines.append(_EMULATED_COMPUTE.format(unit=case.unit))
        lines += _difference_lines(case.conditions)
    lines += busy_lines([record for point in points for record in point.records])
    launches = case.launches
    counting = [record for point in points for record in point.counting]
    lines += _processor_lines(launches) + _interface_lines(launches) + mixed_lines(counting)
    return lines + _job_lines(case)


def _difference_lines(own: Mapping[str, Any]) -> list[str]:
    """What follows where emulated workers were asked to differ."""
    differences = _differences_text(own)
    if not differences:
        return []
    return [
        f"Emulated workers differ as asked ({differences}): synchronous training waits for the "
        "slowest, and efficiency counts that as lost."
    ]


def busy_lines(records: Sequence[RunRecord]) -> list[str]:
    """How many runs others disturbed; the load average counts where it was not measured."""
    lines = []
    for whoever, name in (("other programs", "foreign_load"), ("the hypervisor", "stolen_load")):
        loads = [getattr(record, name) or 0.0 for record in records]
        disturbed = sum(load > FOREIGN_LIMIT for load in loads)
        if disturbed:
            lines.append(
                f"In {disturbed} of {len(records)} runs {whoever} took more than "
                f"{FOREIGN_LIMIT:.0%} of a host's processor time, up to {max(loads):.0%}: they may "
                "have been disturbed."
            )
    busy = sum(record.began_busy for record in records)
    if busy:
        lines.append(
            f"{busy} of {len(records)} runs began with a load average above {BUSY_LOAD:g} per "
            "processor, and what others used while they were measured is not known. Other programs "
            "may have slowed them down; a part of that load may also be left of the run just "
            "before."
        )
    return lines


def _processor_lines(launches: pd.DataFrame) -> list[str]:
    """Where processors may have been the limit, and whether that was measured."""
    limited = launches[processors_may_limit(launches)]
    unknown = int(limited["busy"].isna().sum())
    measured = len(limited) - unknown
    told = []
    if measured:
        told.append(f"in {measured} they were {BUSY_LIMIT:.0%} busy or more")
    if unknown:
        told.append(f"in {unknown} this is not known, and tasks had fewer cores than they use")
    if not told:
        return []
    return [
        f"Of {count_text(len(launches), 'run')}, processors may have been the limit of "
        f"{len(limited)}: {'; '.join(told)}. Points with such runs are marked {MARK} and no "
        "efficiency is claimed from them."
    ]


def _interface_lines(launches: pd.DataFrame) -> list[str]:
    """Whether the launcher chose one interface for some runs and another one for others."""
    names = launches.loc[(launches["num_hosts"] > 1).fillna(False), "interface"].dropna().unique()
    if len(names) < 2:
        return []
    return [
        f"Runs used different interfaces ({', '.join(names)}), so differences between them may be "
        "those of the networks: choose one with --interface."
    ]


def _job_lines(case: Case) -> list[str]:
    """How far the base tells the jobs of a sweep apart; empty where not several measured it."""
    base = base_of(case, case.points[0], "single")
    if base is None:
        return []
    by_job = base.launches.dropna(subset="job_id").groupby("job_id", sort=False)
    means = by_job["examples_per_sec"].agg(lambda rates: estimate(rates.astype(float)).mean)
    if len(means) < 2:
        return []
    others = set(case.attempts["job_id"].dropna()) - set(means.index)
    without = f" {count_text(len(others), 'other job')} had no base." if others else ""
    listed = ", ".join(f"{mean:.4g}" for mean in means)
    return [
        f"The base, a single worker, was measured in {len(means)} jobs: {listed} {case.unit}/s, up "
        f"to {max(means) / min(means) - 1:.0%} apart. Points of different jobs may differ by that "
        f"much for no reason of their own.{without}"
    ]


def mixed_lines(records: Sequence[RunRecord]) -> list[str]:
    """How many runs had hosts of different kinds, with the hosts of each kind in one of them."""
    by_kind = [kinds([host.facts for host in record.hosts]) for record in records]
    mixed = [names_of for names_of in by_kind if len(names_of) > 1]
    if not mixed:
        return []
    example = "; ".join(", ".join(names) for names in mixed[0].values())
    return [
        f"Hosts of different kinds took part in {len(mixed)} of {count_text(len(records), 'run')} "
        f"(kinds in one of them: {example}): synchronous training waits for the slowest."
    ]


def attempts_lines(attempts: pd.DataFrame) -> list[str]:
    """How many attempts did not end well, and the commonest reason; empty if all did."""
    bad = attempts[attempts["status"] != Status.OK]
    if bad.empty:
        return []
    reasons = bad["reason"].value_counts()
    return [
        f"Of {len(attempts)} attempts {len(attempts) - len(bad)} ended well: {status_text(bad)}. "
        f"Commonest reason ({reasons.iloc[0]} of {len(bad)}): {reasons.index[0]}"
    ]


def status_text(attempts: pd.DataFrame) -> str:
    """`2 failed, 1 timed out`, in the order of the statuses."""
    counts = attempts["status"].value_counts(sort=False)
    return ", ".join(f"{n} {str(name).replace('_', ' ')}" for name, n in counts.items() if n)


def what_was_run(case: Case) -> Items:
    """Names and values, for a reader who would repeat it."""
    own = case.conditions
    items = [
        ("model", _model_text(case)),
        ("batch per worker", f"{own['batch_per_worker']}, accumulation {own['accumulation']}"),
        ("input", _shared(case.attempts["input"])),
        ("optimizer", _optimizer_text(case)),
        (
            "worker",
            f"{own['device']}, {own['cores_per_worker']} core(s), "
            f"{own['threads_per_worker']} thread(s)",
        ),
        ("launcher", own["launcher"]),
        ("profile", _profile_text(case)),
    ]
    return items + _exchange_items(case) + _further_items(case)


def _optimizer_text(case: Case) -> str:
    """`adam, learning rate 0.001, beta 1 0.9 ...`: the settings that it has."""
    own = case.conditions
    settings = {name: own[name] for name in OPTIMIZER_SETTINGS if own[name] is not None}
    stated = (f"{name.replace('_', ' ')} {float(value):g}" for name, value in settings.items())
    return ", ".join([str(own["optimizer"]), *stated])


def _model_text(case: Case) -> str:
    own = case.conditions
    if own["image_size"] is None:
        return str(own["model"])
    size = own["image_size"]
    return f"{own['model']}, {size} x {size} x 3, {own['num_classes']} classes"


def _profile_text(case: Case) -> str:
    """What a run measures other than throughput has no lengths to state."""
    own = case.conditions
    lengths = ""
    if own["least_measured_steps"] is not None:
        lengths = (
            f": {own['warmup']} warm-up, at least {own['least_warmup_steps']} steps and "
            f"{own['least_warmup_s']:g} s, "
            f"measured {own['least_measured_steps']} steps and {own['least_measured_s']:g} s"
        )
    return f"{_shared(case.attempts['profile'])}{lengths}, {_repetitions_text(case)}"


def _repetitions_text(case: Case) -> str:
    """Points of the main comparison may have more than the others."""
    made = [point.attempts["repetition"].nunique() for point in case.points]
    fewest, most = min(made), max(made)
    more = f" to {most}" if most > fewest else ""
    return f"{fewest}{more} repetition{'s' * (most != 1)} of a point"


def _shared(values: pd.Series) -> str:
    return ", ".join(values.dropna().unique())


def _further_items(case: Case) -> Items:
    own, items = case.conditions, []
    if own["asked_workers_per_host"] is not None:
        items.append(("workers per host", str(own["asked_workers_per_host"])))
    if case.emulated:
        forward_s, backward_s = own["emulated_forward_s"], own["emulated_backward_s"]
        text = f"emulated: forward {forward_s:g} s, backward {backward_s:g} s"
        items.append(("compute", ", ".join(filter(None, [text, _differences_text(own)]))))
    return items


def _differences_text(own: Mapping[str, Any]) -> str:
    """How emulated workers differ from what is stated for all of them; empty if they do not."""
    named = {"factors of workers": own["emulated_factors"], "jitter": own["emulated_jitter"]}
    return ", ".join(f"{name} {text}" for name, text in named.items() if text is not None)


def _exchange_items(case: Case) -> Items:
    """How each strategy exchanges gradients: what all its points share, and what labels tell."""
    by_strategy: dict[str, list[dict[str, object]]] = {}
    for point in case.points:
        if point.setting.traits.communicates():
            layout = point.asked["layout"]
            settings = exchange_of(point.asked) | ({} if layout is None else {"layout": layout})
            by_strategy.setdefault(point.setting.strategy, []).append(settings)
    return [(f"exchange of {name}", _shared_text(each)) for name, each in by_strategy.items()]


def _shared_text(settings: Sequence[Mapping[str, object]]) -> str:
    names = dict.fromkeys(name for each in settings for name in each)
    values = {name: {each[name] for each in settings if name in each} for name in names}
    return ", ".join(f"{_SHORT.get(name, name)} {_text(all_)}" for name, all_ in values.items())


def _text(values: Collection[object]) -> str:
    (value, *others) = values
    return "as labelled" if others else "none" if value is None else str(value)
