"""The tables of a report, as text.

Decides the columns that a reader sees and how numbers are rounded; a value that is not there is
shown as a dash.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache

import numpy as np
import pandas as pd

from analysis.data.cases import MARK, Case, Point
from analysis.report.sentences.circumstances import status_text
from analysis.report.sentences.constancy import steadiness_text
from analysis.report.sentences.sizes import scaling_lines_of
from analysis.stats.points import BASES, base_text, point_table
from analysis.wording import NONE, count_text, number, ratio, with_interval
from ps_allreduce.point.strategies import NoCommunication, Single
from ps_allreduce.record.records import BUSY_LIMIT

#: Columns by the names that tables of a report give them; `unit` stands for images, rows, examples,
#: `base` for the strategy of the base.
_HEADINGS: Mapping[str, str] = {
    "setting": "setting",
    "num_workers": "workers",
    "global_batch": "global batch",
    "num_hosts": "hosts",
    "threads": "threads",
    "transport": "transport",
    "rate": "{unit}/s [95 %]",
    "tokens": "tokens/s",
    "launches": "n",
    "per_worker_core": "{unit}/s per worker core",
    "per_total_core": "{unit}/s per core in all",
    "per_host": "{unit}/s per host",
    "ok": "ok/planned",
    "speedup_single": "speed-up on {base}",
    "speedup_own": "speed-up on own 1 worker",
    "efficiency_single": "efficiency on {base}",
    "efficiency_own": "efficiency on own 1 worker",
    "step_mean_s": "step ms",
    "step_time_p50_s": "step p50 ms",
    "step_time_p95_s": "step p95 ms",
    "compute_s": "compute ms",
    "communication_s": "exposed communication ms",
    "input_wait_s": "input wait ms",
    "steadiness": "steps of launches",
    "network_s": "busiest link ms",
    "bound_s": "bound of the step ms",
    "bound_step_s": "step reached ms",
    "fraction": "fraction of the bound [95 %]",
}

#: How columns are spelled where they are known.
_SPELLED: Mapping[Callable[[float], str], list[str]] = {
    "{:.0f}".format: ["num_workers", "global_batch", "num_hosts", "threads", "launches"],
    number: ["tokens", "per_worker_core", "per_total_core", "per_host"],
    lambda seconds: f"{seconds * 1e3:.2f}": [
        name for name, heading in _HEADINGS.items() if heading.endswith(" ms")
    ],
}
#: Where two of them are the same everywhere, the first is enough.
_SHARES = ("per_worker_core", "per_total_core", "per_host")

_MARKED = {f"speedup_{base}": f"marks_{base}" for base in BASES}
_WITH_INTERVAL = ("rate", "fraction", *_MARKED, *(f"efficiency_{base}" for base in BASES))

#: The tables of a report: what fits side by side on a page.
POINT = ("setting", "num_workers")
_IN_REPORT: Mapping[str, tuple[str, ...]] = {
    "results": (
        *(*POINT, "num_hosts", "threads", "transport", "rate", "tokens", "ok"),
        *("per_worker_core", "per_total_core", "per_host"),
    ),
    "scaling": (
        *(*POINT, "global_batch"),
        *("speedup_single", "speedup_own", "efficiency_single", "efficiency_own"),
    ),
    "steps": (
        *(*POINT, "step_mean_s", "compute_s", "communication_s", "input_wait_s"),
        *("step_time_p50_s", "step_time_p95_s", "steadiness"),
    ),
    "bounds": (*(*POINT, "network_s", "bound_s", "bound_step_s", "fraction", "launches"),),
}

#: Several tables and the screen show columns of the same text.
_CASES = 16


def report_table(case: Case, what: str) -> pd.DataFrame:
    """A table of a report, as text under its headings; of bounds only points that have one.

    Args:
        what: `results`, `scaling`, `steps` or `bounds`.
    """
    text = text_table(case)
    if what == "bounds":
        text = text[point_table(case)["fraction"].notna()]
    names = [name for name in _IN_REPORT[what] if worth_showing(case, name)]
    shares = text[[name for name in _SHARES if name in names]]
    needless = {*shares.columns[shares.T.duplicated()], *_unknown(text[names])}
    shown = [name for name in names if name not in needless]
    return text[shown].rename(columns=lambda name: heading_of(case, name))


def _unknown(text: pd.DataFrame) -> list[str]:
    """Columns without any value, in a table with rows."""
    return [str(name) for name in text.columns[(text == NONE).all() & bool(len(text))]]


def heading_of(case: Case, name: str) -> str:
    """The name of a column, with what is counted."""
    base = NoCommunication if case.shares_cores else Single
    return _HEADINGS[name].format(unit=case.unit, base=base.kind)


def is_bounded(case: Case) -> bool:
    """Links set a bound for some point."""
    return bool(point_table(case)["fraction"].notna().any())


def worth_showing(case: Case, name: str) -> bool:
    """Hosts where a point has several, threads and transports that differ, tokens of text."""
    if name == "tokens":
        return case.tokens_per_example is not None
    if name in ("num_hosts", "per_host"):
        return on_several_hosts(case)
    return name not in ("threads", "transport") or point_table(case)[name].nunique() > 1


def on_several_hosts(case: Case) -> bool:
    """Some point used more than one host."""
    return bool((point_table(case)["num_hosts"] > 1).any())


@lru_cache(maxsize=_CASES)
def text_table(case: Case) -> pd.DataFrame:
    """A row for each point, in the order of the case, as text.

    Columns are those of the table of points; ok; steadiness; speedup and of_bound without an
    interval.
    """
    points = point_table(case)
    text = points[["setting", "transport"]].fillna(NONE)
    text["ok"] = [_ok_text(point) for point in case.points]
    text["steadiness"] = [steadiness_text(point.launches) or NONE for point in case.points]
    for spell, names in _SPELLED.items():
        spelled = points[names].map(spell, na_action="ignore")
        text[names] = spelled.astype(object).fillna(NONE)
    for name in _WITH_INTERVAL:
        spell = number if name == "rate" else ratio
        values = points[[name, f"{name}_low", f"{name}_high"]].itertuples(index=False)
        text[name] = [with_interval(spell, *each) for each in values]
    for name, marks in {"rate": "marks", **_MARKED}.items():
        shown = points[marks].where(points[name].notna(), "")
        text[name] = (text[name] + " " + shown).str.rstrip()
    for base in BASES:
        claimed = (points[f"marks_{base}"] == "") | points[f"base_{base}"].isna()
        name = f"efficiency_{base}"
        text[name] = text[name].where(claimed, f"not claimable {MARK}")
    sent = np.array([point.setting.traits.communicates() for point in case.points])
    text["communication_s"] = text["communication_s"].where(sent, NONE)
    text["speedup"] = points["speedup_single"].map(ratio)
    text["of_bound"] = points["fraction"].map(ratio)
    return text


def _ok_text(point: Point) -> str:
    """`3/3`, or `2/3, 1 failed`."""
    unusable = ", ".join(filter(None, [status_text(point.unusable)]))
    return ", ".join(filter(None, [f"{len(point.rates)}/{point.planned}", unusable]))


def pairs_lines(case: Case, bases: Sequence[str]) -> list[str]:
    """On how many launches speed-ups rest that leave some out; empty where none does."""
    told = []
    for base in bases:
        pairs = point_table(case)[f"pairs_{base}"].dropna()
        if len(pairs):
            fewest, most = int(pairs.min()), count_text(int(pairs.max()), "pair")
            several = f"{fewest} to " if fewest < pairs.max() else ""
            told.append(f"{several}{most} ({heading_of(case, f'speedup_{base}')})")
    if not told:
        return []
    return [
        "Some speed-ups count only launches that have one of the base in the same turn: "
        f"{', '.join(told)}."
    ]


def _bounds_passed(case: Case) -> list[str]:
    """Upper bounds that some point is above: what workers do that exchange nothing, or alone."""
    table = point_table(case)
    rates = list(zip(case.points, table["rate"], strict=True))
    free = {
        point.num_workers: rate
        for point, rate in rates
        if not point.setting.traits.communicates() and point.setting.traits.max_workers != 1
    }
    efficiency = table[[f"efficiency_{base}" for base in BASES]].to_numpy()
    passed = {
        "that of no_communication with as many workers": any(
            point.setting.traits.communicates() and rate > free.get(point.num_workers, math.inf)
            for point, rate in rates
        ),
        "an efficiency of 1": bool((efficiency > 1).any()),
    }
    return [bound for bound, is_passed in passed.items() if is_passed]


def legend(case: Case) -> str:
    """What the columns of the table of results mean, for below it."""
    lines = [
        f"{case.unit}/s: geometric mean over n launches with its 95 % interval (from three "
        "launches on).",
        "ok/planned: launches that are ok, of those planned, and what became of other attempts.",
    ]
    if case.tokens_per_example is not None:
        lines.append(f"tokens/s: the mean, times {case.tokens_per_example} tokens of an example.")
    if on_several_hosts(case):
        lines.append("hosts: all that a point used, those of servers included.")
    lines += _mark_lines(case)
    return " ".join(lines)


def scaling_lines(case: Case) -> list[str]:
    """What speed-ups and efficiencies rest on, and why some are not claimed."""
    lines = [*scaling_lines_of(case), *pairs_lines(case, BASES)]
    if passed := _bounds_passed(case):
        lines.append(
            f"Some points are faster than their upper bound, {' or '.join(passed)}: that much the "
            "launches differ on this machine."
        )
    return lines + _mark_lines(case)


def unclaimed_lines(case: Case) -> list[str]:
    """Whose efficiency is not claimed at any number of workers, and why."""
    points = point_table(case)
    beyond = points[(points["num_workers"] > 1) & (points["launches"] > 0)]
    known = beyond[beyond["base_single"].notna()]
    claimed = known.groupby("setting", sort=False)["efficiency_single"].count()
    without = [str(setting) for setting in claimed.index[claimed == 0]]
    if not without:
        return []
    whose = f" of {'; '.join(without)}" if len(without) < len(claimed) else ""
    also = "" if case.shares_cores else ", of the point or of the single worker"
    return [
        f"No efficiency on {base_text(case)} is claimable{whose}: processors may have been the "
        f"limit{also}, so no figure shows it."
    ]


def _mark_lines(case: Case) -> list[str]:
    if MARK not in "".join(point_table(case)["marks"]):
        return []
    return [
        f"{MARK} processors may have been the limit, so no efficiency is claimed: in some launch "
        f"they were {BUSY_LIMIT:.0%} busy or more, or this is not known and tasks had fewer cores "
        "than they use."
    ]
