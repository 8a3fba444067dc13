"""The table on the screen, and the same rows for the report.

Decides the columns that a reader sees and how numbers are rounded; a value that is not there is
shown as a dash.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rich import box
from rich.table import Table

from analysis.data.cases import Case, Point
from analysis.derive.bounds import Reached, reached_at, reached_by
from analysis.derive.breakdown import Breakdown, breakdown_of
from analysis.derive.efficiency import Scaling, scalings
from analysis.report.circumstances import status_text
from analysis.stats.statistics import Comparison, Estimate
from ps_allreduce.record.records import BUSY_LIMIT, Status

NONE = "-"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One point, as text.

    Attributes:
        hosts: used, those of dedicated servers included.
        speedup, of_bound: without their intervals.
    """

    setting: str
    workers: str
    hosts: str
    transport: str
    images_per_sec: str
    launches: str
    per_worker_core: str
    per_total_core: str
    per_host: str
    speedup: str
    speedup_single: str
    speedup_own: str
    efficiency_single: str
    efficiency_own: str
    step_p50_ms: str
    step_p95_ms: str
    compute_ms: str
    communication_ms: str
    input_ms: str
    network_ms: str
    bound_ms: str
    step_ms: str
    fraction_of_bound: str
    of_bound: str
    attempts: str


HEADINGS: dict[str, str] = {
    "setting": "setting",
    "workers": "workers",
    "hosts": "hosts",
    "transport": "transport",
    "images_per_sec": "images/s [95 %]",
    "launches": "n",
    "per_worker_core": "images/s per worker core",
    "per_total_core": "images/s per core in all",
    "per_host": "images/s per host",
    "attempts": "attempts",
    "speedup_single": "speed-up on single",
    "speedup_own": "speed-up on own 1 worker",
    "efficiency_single": "efficiency on single",
    "efficiency_own": "efficiency on own 1 worker",
    "step_p50_ms": "step p50 ms",
    "step_p95_ms": "step p95 ms",
    "compute_ms": "compute ms",
    "communication_ms": "exposed communication ms",
    "input_ms": "input wait ms",
    "network_ms": "busiest link ms",
    "bound_ms": "bound of the step ms",
    "step_ms": "step reached ms",
    "fraction_of_bound": "fraction of the bound [95 %]",
}

#: The tables of a report: what fits side by side on a page.
_POINT = ("setting", "workers")
_BOUNDS = "Bounds by the links"
_IN_REPORT: dict[str, tuple[str, ...]] = {
    "Throughput": (
        *(*_POINT, "hosts", "transport", "images_per_sec", "launches"),
        *("per_worker_core", "per_total_core", "per_host", "attempts"),
    ),
    "Scaling": (
        *(*_POINT, "speedup_single", "speedup_own", "efficiency_single", "efficiency_own"),
    ),
    "Step times": (
        *(*_POINT, "step_p50_ms", "step_p95_ms", "compute_ms", "communication_ms", "input_ms"),
    ),
    _BOUNDS: (*(*_POINT, "network_ms", "bound_ms", "step_ms", "fraction_of_bound", "launches"),),
}

#: The screen is narrow: the rest is in the report.
_ON_SCREEN = (
    *("setting", "workers", "images_per_sec", "launches", "speedup", "step_p50_ms"),
    *("compute_ms", "communication_ms", "input_ms", "attempts"),
)
#: The same for points on several hosts; without a bound, computation is shown in its place.
_ON_SCREEN_HOSTS = (
    *("setting", "workers", "hosts", "images_per_sec", "launches", "per_host", "speedup"),
    *("of_bound", "communication_ms", "attempts"),
)
_SHORT = {
    "workers": "w",
    "hosts": "h",
    "per_host": "/host",
    "speedup": "speed-up",
    "step_p50_ms": "p50 ms",
    "of_bound": "of bound",
    "compute_ms": "comp ms",
    "communication_ms": "comm ms",
    "input_ms": "input ms",
}


def report_tables(case: Case) -> Mapping[str, tuple[str, ...]]:
    """The columns of a report's tables by their titles."""
    bounded = bool(reached_by(case))
    return {
        title: _worth_showing(case, names)
        for title, names in _IN_REPORT.items()
        if bounded or title != _BOUNDS
    }


def _worth_showing(case: Case, names: tuple[str, ...]) -> tuple[str, ...]:
    """Hosts where a point has several, transports where they differ."""
    several = _on_several_hosts(case)
    transports = {point.experiment.transport for point in case.points} - {None}
    shown = {"hosts": several, "per_host": several, "transport": len(transports) > 1}
    return tuple(name for name in names if shown.get(name, True))


def _on_several_hosts(case: Case) -> bool:
    return any((point.num_hosts or 0) > 1 for point in case.points)


def rows(case: Case) -> list[Row]:
    """One for each point, in the order of the case."""
    return [
        _row(scaling, breakdown_of(scaling.point), reached_at(scaling.point))
        for scaling in scalings(case)
    ]


def _row(scaling: Scaling, parts: Breakdown | None, reached: Reached | None) -> Row:
    point = scaling.point
    mark = f" {scaling.marks}" if scaling.marks else ""
    return Row(
        setting=point.setting.label,
        workers=str(point.num_workers),
        hosts=_count(point.num_hosts),
        transport=point.experiment.transport or NONE,
        images_per_sec=estimate_text(scaling.throughput) + mark,
        launches=str(len(point.rates)),
        per_worker_core=_number(scaling.per_worker_core),
        per_total_core=_number(scaling.per_total_core),
        per_host=_number(scaling.per_host),
        speedup=_plain_ratio(scaling.speedup_single),
        speedup_single=_marked(scaling.speedup_single, scaling.marks_single),
        speedup_own=_marked(scaling.speedup_own, scaling.marks_own),
        efficiency_single=ratio_text(scaling.efficiency_single),
        efficiency_own=ratio_text(scaling.efficiency_own),
        step_p50_ms=_milliseconds(parts.step_time_p50_s if parts else None),
        step_p95_ms=_milliseconds(parts.step_time_p95_s if parts else None),
        compute_ms=_milliseconds(parts.compute_s if parts else None),
        communication_ms=_milliseconds(parts.communication_s if parts else None),
        input_ms=_milliseconds(parts.input_wait_s if parts else None),
        network_ms=_milliseconds(reached.network_s if reached else None),
        bound_ms=_milliseconds(reached.bound_s if reached else None),
        step_ms=_milliseconds(reached.step_s if reached else None),
        fraction_of_bound=_share_text(reached.fraction if reached else None),
        of_bound=f"{reached.fraction.mean:.2f}" if reached else NONE,
        attempts=_attempts(point),
    )


def _marked(value: Comparison | None, marks: str) -> str:
    text = ratio_text(value)
    return f"{text} {marks}" if marks and text != NONE else text


def _attempts(point: Point) -> str:
    good = sum(1 for record in point.attempts if record.status is Status.OK)
    parts = (f"{good} ok" if good else "", status_text(point.unusable))
    return ", ".join(part for part in parts if part)


def render_table(case: Case) -> Table:
    """The table for the screen."""
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), caption=legend(case))
    table.caption_justify = "left"
    usual = _ON_SCREEN_HOSTS if _on_several_hosts(case) else _ON_SCREEN
    instead = {} if reached_by(case) else {"of_bound": "compute_ms"}
    names = [instead.get(name, name) for name in usual]
    for name in names:
        heading = _SHORT[name] if name in _SHORT else HEADINGS[name]
        text = name in ("setting", "attempts")
        table.add_column(heading, justify="left" if text else "right", no_wrap=not text)
    # Settings fold at their commas and keep their words whole, however narrow the screen.
    table.columns[0].min_width = max((len(word) for word in _words(case)), default=1)
    for row in rows(case):
        table.add_row(*(getattr(row, name) for name in names))
    return table


def _words(case: Case) -> list[str]:
    return [word for setting in case.settings for word in setting.label.split()]


def legend(case: Case) -> str:
    """What the columns mean, for below the table."""
    lines = [
        "images/s: geometric mean over n launches with its 95 % interval (from three launches on).",
        "comm ms: step time less compute less input wait, so updates and dispatch too.",
    ]
    if _on_several_hosts(case):
        lines.append("Hosts (h): all that a point used, those of servers included.")
    if _on_several_hosts(case) and reached_by(case):
        lines.append("of bound: 1 is as fast as links and compute allow.")
    if any(point.oversubscribed for point in case.points) and not case.emulated:
        lines.append("* fewer cores than tasks use: no efficiency is claimed.")
    if any(point.machine_limited for point in case.points):
        lines.append(
            f"+ in some launch this machine's processors were {BUSY_LIMIT:.0%} busy or more, or "
            "the window was too short to tell: no efficiency is claimed."
        )
    return " ".join(lines)


def estimate_text(value: Estimate | None) -> str:
    """`123.4 [120.1, 127.0]`."""
    if value is None:
        return NONE
    if value.low is None or value.high is None:
        return _number(value.mean)
    return f"{_number(value.mean)} [{_number(value.low)}, {_number(value.high)}]"


def _share_text(value: Estimate | None) -> str:
    if value is None:
        return NONE
    if value.low is None or value.high is None:
        return f"{value.mean:.2f}"
    return f"{value.mean:.2f} [{value.low:.2f}, {value.high:.2f}]"


def ratio_text(value: Comparison | None) -> str:
    """`1.80 [1.60, 2.05]`."""
    if value is None or value.ratio is None:
        return NONE
    if value.low is None or value.high is None:
        return f"{value.ratio:.2f}"
    return f"{value.ratio:.2f} [{value.low:.2f}, {value.high:.2f}]"


def _count(value: int | None) -> str:
    return NONE if value is None else str(value)


def _plain_ratio(value: Comparison | None) -> str:
    return NONE if value is None or value.ratio is None else f"{value.ratio:.2f}"


def _number(value: float | None) -> str:
    if value is None:
        return NONE
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def _milliseconds(value: float | None) -> str:
    return NONE if value is None else f"{value * 1e3:.2f}"
