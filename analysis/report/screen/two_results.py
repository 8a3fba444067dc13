"""What is printed of two folders of results that are compared: a table, and what sets them apart.

Decides the sentences; what may be compared is decided in `stats.pairs.two_results`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich import box
from rich.console import Console
from rich.table import Table

from analysis.data.blocks import Block, SweepResults, differences
from analysis.data.cases import Point
from analysis.report.sentences.verdict import verdict
from analysis.stats.pairs.two_results import (
    OF_MACHINES,
    SharedCase,
    SharedPoint,
    condition_differences,
)
from analysis.stats.points import mean_rate
from analysis.wording import NONE, count_text, number, ratio, with_interval

_NAMES = ("A", "B")

#: So many points that only one folder has are named.
MOST_NAMED = 4


def show_two(
    console: Console, results: tuple[SweepResults, SweepResults], shared: Sequence[SharedCase]
) -> None:
    """Print what both are, every point of both, and the verdict of each."""
    for name, each in zip(_NAMES, results, strict=True):
        console.print(f"{name}: {_about(each)}", markup=False)
    for line in _difference_lines(*(each.block for each in results)):
        console.print(f"  {line}", markup=False)
    for case in shared:
        console.print(_table(case))
        for line in _case_lines(case):
            console.print(line, markup=False)


def _about(results: SweepResults) -> str:
    """Where it lies, and how much there is of it."""
    runs = count_text(len(results.block.table), "run")
    return f"{results.files.folder}, sweep {results.name}, {runs}"


def _difference_lines(first: Block, second: Block) -> Iterator[str]:
    """What sets the second's machine, software and program apart from the first's."""
    if first.fingerprint == second.fingerprint:
        yield "Both are of one machine, one software and one measured program."
        return
    yield "What differs, B (A):"
    for line in differences(second.records, first.records):
        yield line.replace("(analysed: ", "(A: ")


def _table(shared: SharedCase) -> Table:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("setting")
    unit = shared.first.unit
    for heading in ("w", f"A {unit}/s", f"B {unit}/s", "B over A [95 %]"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("B is")
    for point in shared.points:
        table.add_row(*_row(point))
    return table


def _row(point: SharedPoint) -> list[str]:
    return [
        point.first.setting.label,
        str(point.first.num_workers),
        _rate_text(point.first),
        _rate_text(point.second),
        with_interval(ratio, *point.decision.ends),
        str(point.decision.outcome),
    ]


def _rate_text(point: Point) -> str:
    return number(mean_rate(point)) if len(point.rates) else NONE


def _case_lines(shared: SharedCase) -> Iterator[str]:
    yield (
        "w: workers. Ratios of geometric means over launches, by Welch's test on the logarithm; "
        "intervals are corrected for the number of points (Holm)."
    )
    for doubt in dict.fromkeys(p.decision.doubt for p in shared.points if p.decision.doubt):
        yield f"No verdict: {doubt}."
    apart = condition_differences(shared.first, shared.second, OF_MACHINES)
    for name, (one, other) in apart.items():
        yield f"Not the same in both: {name} is {one} in A and {other} in B."
    for name, points in zip(_NAMES, shared.alone, strict=True):
        if points:
            titles = "; ".join(point.experiment.title for point in points[:MOST_NAMED])
            more = f"; and {len(points) - MOST_NAMED} more" * (len(points) > MOST_NAMED)
            yield f"Only in {name}, and not compared: {titles}{more}."
    for name, case in zip(_NAMES, (shared.first, shared.second), strict=True):
        yield f"{name} says: {verdict(case).headline}"
