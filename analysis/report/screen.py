"""What is printed of a sweep: the table of every case and the verdicts; and of two sweeps.

Decides what fits on a screen: of a verdict the headline and the reason for it, the same at equal
workers and equal cost, the suite against plain TensorFlow, what it has to do with networks, doubts
about numbers of the table, and where the report is, which holds the rest.  All are sentences of the
report.  Of a study with a page of its own it prints the tables of that page; of two folders
that are compared a table, and what sets them apart.  What may be compared is decided in
`stats.two_results`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.measure import Measurement
from rich.table import Table

from analysis.data.blocks import Block, SweepResults, differences
from analysis.data.cases import MARK, Point
from analysis.report.circumstances import unfinished_text
from analysis.report.pages.first_page import with_verdict
from analysis.report.pages.page_parts import CaseReport, Page, PagePart
from analysis.report.table import render_table, short_legend
from analysis.report.verdict import verdict
from analysis.report.where_time_goes import traced_sentence
from analysis.stats.comparisons import Comparison
from analysis.stats.points import mean_rate
from analysis.stats.two_results import NAMES, OF_MACHINES, SharedCase, condition_differences
from analysis.wording import NONE, count_text, number, ratio_text

#: So many points that only one folder has are named.
MOST_NAMED = 4


def show(
    console: Console,
    results: SweepResults,
    reports: Sequence[CaseReport],
    study: Page | None = None,
) -> None:
    """Print tables, what is missing, and at the end the verdicts.

    Args:
        study: the page of the study that the sweep is of; its tables stand in the place
            of those of the cases.
    """
    for item in reports if study is None else ():
        if len(reports) > 1:
            console.print(item.case.name, markup=False)
        _print_whole(console, render_table(item.case))
        console.print(short_legend(item.case), style="italic", markup=False)
        if any(point.mark for point in item.case.points):
            told = "processors may have been the limit, of the point or of its base"
            console.print(f"{MARK} {told}", style="italic")
        if sentence := traced_sentence(item.traces):
            console.print(sentence, markup=False)
    for part in () if study is None else study.parts:
        _show_part(console, part)
    _show_what_is_missing(console, results)
    for item in with_verdict(reports, study):
        console.print()
        console.print(verdict_text(item, alone=len(reports) == 1), markup=False)
    # A path stays in one piece, so that it can be copied.
    path = results.files.folder / "report.html"
    console.print(f"Report: {path}", markup=False, soft_wrap=True)


def _show_part(console: Console, part: PagePart) -> None:
    """Its tables with what is said below them, and its sentences."""
    for each in part.tables:
        title, cells = each.title or None, each.rows.astype(str)
        table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
        for name in cells.columns:
            words = " ".join([str(name), *cells[name]]).split()
            table.add_column(str(name), min_width=max(map(len, words), default=0))
        for row in cells.itertuples(index=False):
            table.add_row(*map(escape, row))
        _print_whole(console, table)
        console.print(each.caption, style="italic", markup=False)
    for line in part.sentences:
        console.print(line, markup=False)


def verdict_text(item: CaseReport, *, alone: bool) -> str:
    """The headline with what belongs to it, then plain TensorFlow, and doubts about numbers.

    It begins with the case, unless that is alone.
    """
    told = item.verdict
    parts = (told.headline, told.reason, told.network, *told.otherwise)
    text = ("" if alone else f"{item.case.name}: ") + " ".join(filter(None, parts))
    return "\n".join([text, *told.stock, *told.doubts])


def _show_what_is_missing(console: Console, results: SweepResults) -> None:
    if results.missing:
        console.print(f"Unfinished: {unfinished_text(results)}")
    if results.older_blocks:
        left = [
            f"{block.fingerprint} ({count_text(len(block.table), 'run')})"
            for block in results.older_blocks
        ]
        console.print(f"Left out, of another machine, software or program: {', '.join(left)}.")


def _print_whole(console: Console, table: Table) -> None:
    """Print a table with all its columns; a terminal that is narrower folds the lines."""
    least = Measurement.get(console, console.options, table).minimum
    console.print(table, width=max(least, console.width), crop=False)


def show_two(
    console: Console, results: tuple[SweepResults, SweepResults], shared: Sequence[SharedCase]
) -> None:
    """Print what both are, every point of both, and the verdict of each."""
    for name, each in zip(NAMES, results, strict=True):
        runs = count_text(len(each.block.table), "run")
        console.print(f"{name}: {each.files.folder}, sweep {each.name}, {runs}", markup=False)
    for line in _difference_lines(*(each.block for each in results)):
        console.print(f"  {line}", markup=False)
    for case in shared:
        if len(shared) > 1:
            console.print(case.first.name, markup=False)
        console.print(_table(case))
        for line in _case_lines(case):
            console.print(line, markup=False)


def _difference_lines(first: Block, second: Block) -> Iterator[str]:
    """What sets the second's machine, software and program apart from the first's."""
    if first.fingerprint == second.fingerprint:
        yield "Both are of one machine, one software and one measured program."
        return
    yield "What differs, B (A):"
    for line in differences(second.records, first.records):
        yield line.replace("(analysed: ", "(A: ")


def _table(shared: SharedCase) -> Table:
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("setting")
    unit = shared.first.unit
    for heading in ("w", f"A {unit}/s", f"B {unit}/s", "B over A [95 %]"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("B is")
    for point in shared.points:
        table.add_row(*_row(point))
    return table


def _row(row: Comparison) -> list[str]:
    """B is told of, and A stands first."""
    second, first = row.points
    return [
        first.setting.label,
        str(first.num_workers),
        _rate_text(first),
        _rate_text(second),
        ratio_text(*row.decision.ends),
        str(row.outcome),
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
    for name, points in zip(NAMES, shared.alone, strict=True):
        if points:
            titles = "; ".join(point.experiment.title for point in points[:MOST_NAMED])
            more = f"; and {len(points) - MOST_NAMED} more" * (len(points) > MOST_NAMED)
            yield f"Only in {name}, and not compared: {titles}{more}."
    for name, case in zip(NAMES, (shared.first, shared.second), strict=True):
        yield f"{name} says: {verdict(case).headline}"
