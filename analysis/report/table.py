"""The table on the screen, and the same rows for the report.

Decides the columns that a reader sees and how numbers are rounded; a value that is not there is
shown as a dash.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import pandas as pd
from rich import box
from rich.table import Table

from analysis.data.cases import Case, Point
from analysis.report.circumstances import status_text
from analysis.stats.points import point_table
from analysis.stats.statistics import Comparison, Estimate
from ps_allreduce.record.records import BUSY_LIMIT, Status

NONE = "-"

#: Columns by the names that tables of a report give them; `unit` stands for images, tokens, rows.
_HEADINGS: Mapping[str, str] = {
    "setting": "setting",
    "workers": "workers",
    "hosts": "hosts",
    "transport": "transport",
    "rate": "{unit}/s [95 %]",
    "launches": "n",
    "per_worker_core": "{unit}/s per worker core",
    "per_total_core": "{unit}/s per core in all",
    "per_host": "{unit}/s per host",
    "attempts": "attempts",
    "speedup_single": "speed-up on single",
    "speedup_own": "speed-up on own 1 worker",
    "efficiency_single": "efficiency on single",
    "efficiency_own": "efficiency on own 1 worker",
    "step_time_p50_s": "step p50 ms",
    "step_time_p95_s": "step p95 ms",
    "compute_s": "compute ms",
    "communication_s": "exposed communication ms",
    "input_wait_s": "input wait ms",
    "network_s": "busiest link ms",
    "bound_s": "bound of the step ms",
    "bound_step_s": "step reached ms",
    "fraction": "fraction of the bound [95 %]",
}

#: The tables of a report: what fits side by side on a page.
_POINT = ("setting", "workers")
_BOUNDS = "Bounds by the links"
_IN_REPORT: Mapping[str, tuple[str, ...]] = {
    "Throughput": (
        *(*_POINT, "hosts", "transport", "rate", "launches"),
        *("per_worker_core", "per_total_core", "per_host", "attempts"),
    ),
    "Scaling": (
        *(*_POINT, "speedup_single", "speedup_own", "efficiency_single", "efficiency_own"),
    ),
    "Step times": (
        *(*_POINT, "step_time_p50_s", "step_time_p95_s", "compute_s", "communication_s"),
        "input_wait_s",
    ),
    _BOUNDS: (*(*_POINT, "network_s", "bound_s", "bound_step_s", "fraction", "launches"),),
}

#: The screen is narrow: the rest is in the report.  Names as on the screen, if they are shorter.
_ON_SCREEN: Mapping[str, str] = {
    "setting": "",
    "workers": "w",
    "rate": "",
    "launches": "",
    "speedup": "speed-up",
    "step_time_p50_s": "p50 ms",
    "compute_s": "comp ms",
    "communication_s": "comm ms",
    "input_wait_s": "input ms",
    "attempts": "",
}
#: The same for points on several hosts; without a bound, computation is shown in its place.
_ON_SCREEN_HOSTS: Mapping[str, str] = {
    "setting": "",
    "workers": "w",
    "hosts": "h",
    "rate": "",
    "launches": "",
    "per_host": "/host",
    "speedup": "speed-up",
    "of_bound": "of bound",
    "communication_s": "comm ms",
    "attempts": "",
}


def report_tables(case: Case) -> dict[str, pd.DataFrame]:
    """The tables of a report by their titles, as text under their headings."""
    text = text_table(case)
    tables = {}
    for title, names in _IN_REPORT.items():
        if title != _BOUNDS or _bounded(text):
            shown = text[[name for name in names if _worth_showing(case, name)]]
            tables[title] = shown.rename(columns=lambda name: _heading(case, name))
    return tables


def _heading(case: Case, name: str) -> str:
    return _HEADINGS[name].format(unit=case.unit)


def _bounded(text: pd.DataFrame) -> bool:
    return bool((text["of_bound"] != NONE).any())


def _worth_showing(case: Case, name: str) -> bool:
    """Hosts where a point has several, transports where they differ."""
    if name in ("hosts", "per_host"):
        return _on_several_hosts(case)
    return name != "transport" or len({point.transport for point in case.points} - {None}) > 1


def _on_several_hosts(case: Case) -> bool:
    return any((point.common("num_hosts") or 0) > 1 for point in case.points)


def text_table(case: Case) -> pd.DataFrame:
    """A row for each point, in the order of the case, as text."""
    points = point_table(case)
    text = pd.DataFrame({"setting": points["setting"], "transport": points["transport"]})
    text["workers"] = [str(point.num_workers) for point in case.points]
    text["hosts"] = [_count(point.common("num_hosts")) for point in case.points]
    text["launches"] = [str(len(point.rates)) for point in case.points]
    text["attempts"] = [_attempts(point) for point in case.points]
    text["rate"] = _intervals(points, "rate", number) + _after_space(points["marks"])
    for name in ("per_worker_core", "per_total_core", "per_host"):
        text[name] = points[name].map(number)
    for name in ("speedup_single", "speedup_own"):
        marks = _after_space(points[f"marks_{name.removeprefix('speedup_')}"])
        text[name] = _intervals(points, name, ratio) + marks.where(points[name].notna(), "")
    for name in ("efficiency_single", "efficiency_own", "fraction"):
        text[name] = _intervals(points, name, ratio)
    seconds = [name for name, heading in _HEADINGS.items() if heading.endswith(" ms")]
    text[seconds] = points[seconds].map(_milliseconds)
    text["speedup"] = points["speedup_single"].map(ratio)
    text["of_bound"] = points["fraction"].map(ratio)
    return text.fillna({"transport": NONE})


def _intervals(points: pd.DataFrame, name: str, spell: Callable[[float], str]) -> pd.Series:
    """A mean and its interval: `123.4 [120.1, 127.0]`."""
    low, high = points[f"{name}_low"], points[f"{name}_high"]
    ends = " [" + low.map(spell) + ", " + high.map(spell) + "]"
    return points[name].map(spell) + ends.where(low.notna() & high.notna(), "")


def _after_space(marks: pd.Series) -> pd.Series:
    return marks.map(lambda mark: f" {mark}" if mark else "")


def _attempts(point: Point) -> str:
    good = int((point.attempts["status"] == Status.OK).sum())
    parts = (f"{good} ok" if good else "", status_text(point.unusable))
    return ", ".join(part for part in parts if part)


def render_table(case: Case) -> Table:
    """The table for the screen."""
    text = text_table(case)
    headings = dict(_ON_SCREEN_HOSTS if _on_several_hosts(case) else _ON_SCREEN)
    if not _bounded(text):
        instead = {"of_bound": ("compute_s", "comp ms")}
        headings = dict(instead.get(name, (name, short)) for name, short in headings.items())
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), caption=legend(case))
    table.caption_justify = "left"
    for name, short in headings.items():
        words = name in ("setting", "attempts")
        heading = short or _heading(case, name)
        table.add_column(heading, justify="left" if words else "right", no_wrap=not words)
    # Settings fold at their commas and keep their words whole, however narrow the screen.
    table.columns[0].min_width = int(text["setting"].str.split().explode().str.len().max())
    for row in text[list(headings)].itertuples(index=False):
        table.add_row(*row)
    return table


def legend(case: Case) -> str:
    """What the columns mean, for below the table."""
    lines = [
        f"{case.unit}/s: geometric mean over n launches with its 95 % interval (from three "
        "launches on).",
        "comm ms: step time less compute less input wait, so updates and dispatch too.",
    ]
    if _on_several_hosts(case):
        lines.append("Hosts (h): all that a point used, those of servers included.")
        if any(point.launches["bound_s"].notna().any() for point in case.points):
            lines.append("of bound: 1 is as fast as links and compute allow.")
    if any(point.oversubscribed for point in case.points) and not case.emulated:
        lines.append("* fewer cores than tasks use: no efficiency is claimed.")
    if any(point.machine_limited for point in case.points):
        lines.append(
            f"+ in some launch this machine's processors were {BUSY_LIMIT:.0%} busy or more, or "
            "the window was too short to tell: no efficiency is claimed."
        )
    return " ".join(lines)


def estimate_text(value: Estimate) -> str:
    """`123.4 [120.1, 127.0]`."""
    if value.low is None or value.high is None:
        return number(value.mean)
    return f"{number(value.mean)} [{number(value.low)}, {number(value.high)}]"


def ratio_text(value: Comparison) -> str:
    """`1.80 [1.60, 2.05]`."""
    if value.ratio is None:
        return NONE
    if value.low is None or value.high is None:
        return ratio(value.ratio)
    return f"{ratio(value.ratio)} [{ratio(value.low)}, {ratio(value.high)}]"


def ratio(value: float) -> str:
    """`1.80`, or a dash."""
    return NONE if math.isnan(value) else f"{value:.2f}"


def number(value: float) -> str:
    """`123.4`, or a dash."""
    if math.isnan(value):
        return NONE
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def _count(value: int | None) -> str:
    return NONE if value is None else str(value)


def _milliseconds(value: float) -> str:
    return NONE if math.isnan(value) else f"{value * 1e3:.2f}"
