"""How close every strategy comes to the bound that its links set.

Runs the points of `wire_grid` on emulated links and renders the table.  Decides what counts as
missed: a step that takes too long, a run that failed, and a point that was not run.  What a run has
reached is decided by `wire_measure`, where the rows are kept by `bench`.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console

from experiments.suite.wire_grid import Point
from experiments.suite.wire_measure import LinksMismeasured, Measured, measure
from experiments.sweep.progress import counting_bar
from launchers.protocol import Launcher
from ps_allreduce.errors import SuiteError, UserError
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.layout import num_hosts
from ps_allreduce.point.strategies import Strategy
from ps_allreduce.record.records import Status
from ps_allreduce.serialization import to_json

NOT_RUN = "not run"

#: What a row says about processors, as `Measured` names it.
COSTS = ("machine_busy", "cpu_s_per_gigabyte", "core_bits_per_s")

#: Digits of the number of a launch.
LAUNCH_DIGITS = 3

HEADINGS = (
    "strategy  workers ps per host layout      MB tensors compute s   step s  bound s fraction  "
    "busy CPU s/GB Gbit/s per core target"
)


@dataclass(slots=True)
class Row:
    """A point and what became of its launches so far: figures, or why there are none."""

    point: Point
    launches: list[Measured | str] = field(default_factory=list)

    @property
    def measured(self) -> list[Measured]:
        """Launches that ended well."""
        return [one for one in self.launches if isinstance(one, Measured)]

    @property
    def reason(self) -> str:
        """Why a launch is missing; empty if none is."""
        reasons = [one for one in self.launches if isinstance(one, str)]
        return "; ".join(dict.fromkeys(reasons)) if self.launches else NOT_RUN

    @property
    def fraction(self) -> float | None:
        """Median of the launches."""
        return self.median("fraction")

    @property
    def met(self) -> bool | None:
        """Every launch ended well, and together they reach the target; None without a target."""
        target, reached = self.point.target, self.fraction
        if target is None:
            return None
        return not self.reason and reached is not None and reached >= target

    def median(self, name: str) -> float | None:
        """Of a figure over the launches that know it."""
        values = [getattr(one, name) for one in self.measured]
        known = [value for value in values if value is not None]
        return statistics.median(known) if known else None

    def to_json(self) -> dict[str, Any]:
        """The row as `bench.json` keeps it."""
        experiment = self.point.experiment
        fractions = [one.fraction for one in self.measured]
        names = ("link_bits_per_s", "step_s", "bound_s", *COSTS)
        return {
            "strategy": str(experiment.strategy),
            "num_workers": experiment.num_workers,
            "num_ps": experiment.num_ps,
            "ps_per_host": _ps_per_host(experiment),
            "layout": to_json(experiment.layout),
            "gradient_bytes": self.point.gradient_bytes,
            "num_tensors": self.point.num_tensors,
            "compute_s": self.point.compute_s,
            "tuned": self.point.tuned,
            **{name: self.median(name) for name in names},
            "cpu_over": ", ".join(dict.fromkeys(one.cpu_over for one in self.measured)),
            "fraction_of_bound": self.fraction,
            "fraction_low": min(fractions, default=None),
            "fraction_high": max(fractions, default=None),
            "target": self.point.target,
            "met": self.met,
            "repetitions": len(self.measured),
            "reason": self.reason,
            "settings": {
                **to_json(experiment.wire),
                "bytes_per_pack": experiment.bytes_per_pack,
                "placement": to_json(experiment.placement),
                "split_bytes": experiment.split_bytes,
            },
            "network": to_json(experiment.network),
        }


def run_wire_bench(
    launcher: Launcher,
    points: Sequence[Point],
    save: Callable[[list[dict[str, Any]]], None],
    console: Console,
    repetitions: int = 1,
) -> list[Row]:
    """Launch all points, once per round; what does not succeed is kept with its reason.

    Args:
        save: given all rows after every launch, those that are still to come among them.

    Raises:
        KeyboardInterrupt: the operator ended a run.
    """
    rows = [Row(point) for point in points]
    total = repetitions * len(rows)
    console.print(f"{'':>{2 * LAUNCH_DIGITS + 1}} {HEADINGS}", highlight=False, soft_wrap=True)
    with counting_bar(console, "points held against the wire") as progress:
        for done in range(total):
            row = rows[done % len(rows)]
            progress(done, total)
            row.launches.append(_launch(launcher, row.point))
            save([each.to_json() for each in rows])
            console.print(
                f"{done + 1:>{LAUNCH_DIGITS}}/{total:<{LAUNCH_DIGITS}} {_line(row)}",
                highlight=False,
                markup=False,
                soft_wrap=True,
            )
    return rows


def check_room(launcher: Launcher, points: Sequence[Point]) -> None:
    """See that all points fit, before half an hour is spent on those that do.

    Raises:
        UserError: there are too few.
    """
    there = launcher.capacity().num_hosts
    needed = max((num_hosts(point.experiment) for point in points), default=1)
    if there < needed:
        raise UserError(f"the bench takes {needed} hosts, and there are {there}: --hosts {needed}.")


def _launch(launcher: Launcher, point: Point) -> Measured | str:
    """Figures of a launch, or why there are none; mismeasured links are measured once more."""
    try:
        launcher.check(point.experiment)
        with suppress(LinksMismeasured):
            return _launch_once(launcher, point)
        return _launch_once(launcher, point)
    except SuiteError as error:
        return str(error)


def _launch_once(launcher: Launcher, point: Point) -> Measured:
    run = launcher.launch(point.experiment, progress=lambda _: None)
    if run.status is Status.INTERRUPTED:
        raise KeyboardInterrupt
    return measure(point, run)


def render_wire(rows: Sequence[Row]) -> list[str]:
    """The table of all rows, then a line per target, and what the processors are the limit of."""
    purposes = dict.fromkeys(row.point.purpose for row in rows if row.point.target is not None)
    strategies = dict.fromkeys(row.point.experiment.strategy for row in rows)
    return [
        HEADINGS,
        *(_line(row) for row in rows),
        *(_summary(purpose, rows) for purpose in purposes),
        *(line for strategy in strategies for line in _cost(strategy, rows)),
    ]


def _line(row: Row) -> str:
    experiment, point = row.point.experiment, row.point
    settings = f"{experiment.strategy:<9} {experiment.num_workers:>7} {experiment.num_ps:>2} "
    settings += f"{_ps_per_host(experiment) or '':>8} "
    settings += f"{experiment.layout or '':<9} {point.gradient_bytes / 1e6:>4.0f} "
    settings += f"{point.num_tensors:>7} {point.compute_s:>9.3f}"
    if row.reason:
        return f"{settings} {row.reason}"
    step_s, bound_s = row.median("step_s"), row.median("bound_s")
    verdict = {None: "TensorFlow's own settings" * (not point.tuned), True: "met", False: "missed"}
    target = "" if point.target is None else f"{point.target:.2f}"
    busy, cost, rate = (row.median(name) for name in COSTS)
    return (
        f"{settings} {step_s:>8.3f} {bound_s:>8.3f} {row.fraction:>8.3f} {_number(busy, 5, 2)} "
        f"{_number(cost, 8, 2)} {_number(rate and rate / 1e9, 15, 2)} {target:>6} "
        f"{verdict[row.met]}"
    )


def _ps_per_host(experiment: Experiment) -> int:
    """Servers on a host that has any; 0 where there are none."""
    if not experiment.num_ps or experiment.spread is None:
        return experiment.num_ps
    return experiment.spread.ps_per_host or 1


def _number(value: float | None, width: int, digits: int) -> str:
    return f"{'-':>{width}}" if value is None else f"{value:>{width}.{digits}f}"


def _cost(strategy: Strategy, rows: Sequence[Row]) -> list[str]:
    """Processor time of a strategy beside what TensorFlow needs on its own for the same points."""
    mine = [row for row in rows if row.point.experiment.strategy is strategy]
    rates = [rate for row in mine if row.point.tuned and (rate := row.median("core_bits_per_s"))]
    if not rates:
        return []
    usual, low, high = (f(rates) / 1e9 for f in (statistics.median, min, max))
    text = (
        f"{strategy}: one core per host keeps up with links of {usual:.2f} Gbit/s "
        f"({low:.2f} to {high:.2f})"
    )
    if shares := _shares_of_stock(mine):
        text += f"; processor time per byte {statistics.mean(shares):.2f} of TensorFlow's own"
    return [text]


def _shares_of_stock(rows: Sequence[Row]) -> list[float]:
    """Processor time over that of TensorFlow's own settings, wherever both are known."""
    spent = [(row.point, cost) for row in rows if (cost := row.median("cpu_s_per_gigabyte"))]
    return [
        cost / stock_cost
        for stock, stock_cost in spent
        for point, cost in spent
        if not stock.tuned and point.rival_of(stock)
    ]


def _summary(purpose: str, rows: Sequence[Row]) -> str:
    """How many rows of a purpose reach their target, and the worst of them."""
    mine = [row for row in rows if row.point.purpose == purpose and row.point.target is not None]
    met = sum(row.met is True for row in mine)
    text = f"{purpose}: {met} of {len(mine)} rows reach {mine[0].point.target:.2f}"
    complete = [row for row in mine if not row.reason]
    if len(complete) < len(mine):
        text += f"; {len(mine) - len(complete)} came to nothing"
    if complete:
        worst = min(complete, key=lambda row: row.fraction or 0.0)
        text += f"; worst {worst.fraction:.3f} ({_words(worst.point)})"
    return text


def _words(point: Point) -> str:
    experiment = point.experiment
    servers = f", {experiment.num_ps} ps {experiment.layout}" if experiment.num_ps else ""
    return (
        f"{experiment.num_workers} workers{servers}, {point.gradient_bytes / 1e6:.0f} MB in "
        f"{point.num_tensors} tensors"
    )
