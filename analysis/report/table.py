"""The tables about the points of a case, on pages and on the screen, as text.

Decides the columns that a reader sees, what they are called and how numbers are rounded; a value
that is not there is shown as a dash.  On the screen stand the same rows, as far as they fit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import numpy as np
import pandas as pd
from rich import box
from rich.table import Table

from analysis.data.cases import MARK, Case, Point
from analysis.report.circumstances import status_text
from analysis.report.meetings import scaling_lines_of
from analysis.report.where_time_goes import ms_text, steadiness_text
from analysis.stats.points import BASES, base_text, left_out_text, point_table
from analysis.wording import NONE, count_text, number, ratio, ratio_text, with_interval
from ps_allreduce.point.strategies import NoCommunication, Single

#: What speed-ups and efficiencies are on.
_BASES = {"single": "{base}", "own": "own 1 worker"}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Column:
    """A column about points, on pages and on the screen.

    Attributes:
        heading: `unit` stands for images, rows, examples, `base` for the strategy of the base.
        spell: a value that is known; None for a column of text.
        of: the column of the table of points, where that has another name.
        has_interval: it is spelled with its interval.
        marks: column of the stars behind it.
        short: the heading on the screen.
        meaning: what is short in that.
    """

    heading: str
    spell: Callable[[Any], str] | None = None
    of: str = ""
    has_interval: bool = False
    marks: str = ""
    short: str = ""
    meaning: str = ""


_whole = "{:.0f}".format

_COLUMNS: Mapping[str, _Column] = {
    "setting": _Column(heading="setting"),
    "num_workers": _Column(heading="workers", spell=_whole, short="w", meaning="w: workers"),
    "global_batch": _Column(heading="global batch", spell=_whole),
    "num_hosts": _Column(heading="hosts", spell=_whole, short="h", meaning="h: hosts"),
    "threads": _Column(
        heading="threads", spell=_whole, short="t", meaning="t: threads of a worker"
    ),
    "transport": _Column(heading="transport and format"),
    "jobs": _Column(heading="jobs"),
    "rate": _Column(heading="{unit}/s [95 %]", spell=number, has_interval=True, marks="marks"),
    "tokens": _Column(heading="tokens/s", spell=number),
    "per_worker_core": _Column(heading="{unit}/s per worker core", spell=number),
    "per_total_core": _Column(heading="{unit}/s per core of all tasks", spell=number),
    "per_host": _Column(heading="{unit}/s per host", spell=number),
    "ok": _Column(
        heading="ok/planned",
        short="ok",
        meaning="ok: launches that are ok, of those planned",
    ),
    **{
        f"speedup_{base}": _Column(
            heading=f"speed-up on {told}", spell=ratio, has_interval=True, marks=f"marks_{base}"
        )
        for base, told in _BASES.items()
    },
    **{
        f"efficiency_{base}": _Column(
            heading=f"efficiency on {told}", spell=ratio, has_interval=True
        )
        for base, told in _BASES.items()
    },
    "speedup": _Column(heading="speed-up", spell=ratio, of="speedup_single", marks="marks_single"),
    "step_mean_s": _Column(heading="step ms", spell=ms_text),
    "step_time_p50_s": _Column(heading="step p50 ms", spell=ms_text),
    "step_time_p95_s": _Column(heading="step p95 ms", spell=ms_text),
    "compute_s": _Column(
        heading="compute ms", spell=ms_text, short="comp ms", meaning="comp: compute"
    ),
    "communication_s": _Column(
        heading="exposed communication ms",
        spell=ms_text,
        short="comm ms",
        meaning="comm: exposed communication",
    ),
    "input_wait_s": _Column(heading="input wait ms", spell=ms_text),
    "steadiness": _Column(heading="steps of launches"),
    "network_s": _Column(heading="busiest link ms", spell=ms_text),
    "bound_s": _Column(heading="bound of the step ms", spell=ms_text),
    "bound_step_s": _Column(heading="step reached ms", spell=ms_text),
    "fraction": _Column(heading="fraction of the bound [95 %]", spell=ratio, has_interval=True),
    "bounded": _Column(heading="n", spell=_whole),
    "of_bound": _Column(
        heading="bound",
        spell=ratio,
        of="fraction",
        meaning="bound: share of the bound that was reached (1: what links and compute allow)",
    ),
}

#: Columns that are left out where all points have the same.
_THAT_DIFFER = ("threads", "transport", "jobs")

#: Where two of these are the same everywhere, the first is enough.
_SHARES = ("per_worker_core", "per_total_core", "per_host")

#: The tables of a report: what fits side by side on a page.
POINT = ("setting", "num_workers")
_IN_REPORT: Mapping[str, tuple[str, ...]] = {
    "results": (
        *(*POINT, "num_hosts", "threads", "transport", "jobs", "rate", "tokens", "ok"),
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
    "bounds": (*(*POINT, "network_s", "bound_s", "bound_step_s", "fraction", "bounded"),),
}

#: Columns of the narrowest screen, or of a log: what does not fit is in the report.
SCREEN_WIDTH = 80

#: They fold and keep their words whole, however narrow the screen; the first takes what is left.
_FOLDED = ("setting", "ok")

_ON_SCREEN: tuple[str, ...] = (
    *(*POINT, "threads", "rate", "tokens", "ok", "speedup", "step_mean_s", "compute_s"),
    "communication_s",
)
#: The same for points on several hosts; without a bound, computation is shown in its place.
_ON_SCREEN_HOSTS = (
    *(*POINT, "num_hosts", "threads", "rate", "tokens", "ok", "speedup", "of_bound"),
    "communication_s",
)

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
    unknown = text[names].columns[(text[names] == NONE).all() & bool(len(text))]
    needless = {*shares.columns[shares.T.duplicated()], *unknown}
    shown = [name for name in names if name not in needless]
    return text[shown].rename(columns=lambda name: heading_of(case, name))


def heading_of(case: Case, name: str) -> str:
    """The name of a column, with what is counted."""
    base = NoCommunication if case.shares_cores else Single
    return _COLUMNS[name].heading.format(unit=case.unit, base=base.kind)


def is_bounded(case: Case) -> bool:
    """Links set a bound for some point."""
    return bool(point_table(case)["fraction"].notna().any())


def worth_showing(case: Case, name: str) -> bool:
    """Hosts where a point has several, tokens of text, and what else differs."""
    if name == "tokens":
        return case.tokens_per_example is not None
    if name in ("num_hosts", "per_host"):
        return on_several_hosts(case)
    return name not in _THAT_DIFFER or point_table(case)[name].nunique() > 1


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
    text = points[["setting", "transport", "jobs"]].fillna(NONE)
    text["ok"] = [_ok_text(point) for point in case.points]
    text["steadiness"] = [steadiness_text(point.launches) or NONE for point in case.points]
    for name, column in _COLUMNS.items():
        if column.spell is not None:
            text[name] = _spelled(points, name, column)
    for base in BASES:
        starred, known = points[f"marks_{base}"] != "", points[f"base_{base}"].notna()
        name = f"efficiency_{base}"
        text[name] = text[name].mask(known & points["uneven"], "not claimed")
        text[name] = text[name].mask(known & starred, f"not claimed {MARK}")
    sent = np.array([point.sends for point in case.points])
    text["communication_s"] = text["communication_s"].where(sent, NONE)
    return text


def _spelled(points: pd.DataFrame, name: str, column: _Column) -> pd.Series:
    assert column.spell is not None
    values = points[column.of or name]
    if column.has_interval:
        spell = ratio_text if column.spell is ratio else partial(with_interval, column.spell)
        ends = points[[name, f"{name}_low", f"{name}_high"]].itertuples(index=False)
        text = pd.Series([spell(*each) for each in ends], dtype=object)
    else:
        text = values.map(column.spell, na_action="ignore").astype(object).fillna(NONE)
    if not column.marks:
        return text
    return (text + " " + points[column.marks].where(values.notna(), "")).str.rstrip()


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
        "From three pairs on, a speed-up is of pairs: launches of a point and of its base in the "
        f"same turn. Where that leaves launches out, it rests on {', '.join(told)}."
    ]


def render_table(case: Case) -> Table:
    """The table for the screen."""
    text, names = text_table(case), _names_on_screen(case)
    table = Table(box=box.SIMPLE_HEAD, padding=0)
    for name in names:
        heading = _heading_on_screen(case, name)
        if name == "ok":
            table.add_column(heading, width=_least_width(case, text, name))
        elif name in _FOLDED:
            table.add_column(heading, min_width=_least_width(case, text, name))
        else:
            table.add_column(heading, justify="right", no_wrap=True)
    for row in text[names].itertuples(index=False):
        table.add_row(*row)
    return table


def _names_on_screen(case: Case) -> list[str]:
    """As many columns as the narrowest screen has room for."""
    shown = _ON_SCREEN_HOSTS if on_several_hosts(case) else _ON_SCREEN
    shown = tuple(name for name in shown if worth_showing(case, name))
    names = ["compute_s" if n == "of_bound" and not is_bounded(case) else n for n in shown]
    text = text_table(case)
    # There is a blank between columns, and at either end.
    while sum(_least_width(case, text, name) + 1 for name in names) >= SCREEN_WIDTH:
        names.pop()
    return names


def _least_width(case: Case, text: pd.DataFrame, name: str) -> int:
    words = text[name].str.split().explode() if name in _FOLDED else text[name]
    return max(int(words.str.len().max()), len(_heading_on_screen(case, name)))


def _heading_on_screen(case: Case, name: str) -> str:
    return _COLUMNS[name].short or heading_of(case, name)


#: Else it is over a single worker, whose rate stands in the table.
_SPEEDUP = "Speed-up: the rate over that of {base}, times the number of workers."


def short_legend(case: Case) -> str:
    """What is short in the table for the screen, and what its speed-up leaves out."""
    names = _names_on_screen(case)
    meanings = [_COLUMNS[name].meaning for name in names]
    lines = [
        f"{', '.join(filter(None, meanings))}.",
        _SPEEDUP.format(base=base_text(case)) * (case.shares_cores and "speedup" in names),
        left_out_text(case) if is_bounded(case) else "",
        *scaling_lines_of(case),
        *pairs_lines(case, ["single"]),
    ]
    return " ".join(filter(None, lines))
