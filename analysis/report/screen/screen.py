"""What is printed of a sweep: the table of every case, and at the end the verdicts.

Decides what fits on a screen: of a verdict the headline and the reason for it, the same at equal
workers and equal cost, the suite against plain TensorFlow, what it has to do with networks, what
lost packets cost, and where the report is, which holds the rest.  All are sentences of the report.
Of a study from the literature it prints the tables that stand beside the published numbers.
"""

from __future__ import annotations

from collections.abc import Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.measure import Measurement
from rich.table import Table

from analysis.data.blocks import SweepResults
from analysis.data.cases import MARK
from analysis.report.pages.first_page import with_verdict
from analysis.report.pages.page_parts import CaseReport, Page, PagePart
from analysis.report.screen.screen_table import render_table, short_legend
from analysis.report.sentences.circumstances import loss_lines
from analysis.report.sentences.traced import traced_sentence


def show(
    console: Console,
    results: SweepResults,
    reports: Sequence[CaseReport],
    study: Page | None = None,
) -> None:
    """Print tables, what is missing, and at the end the verdicts.

    Args:
        study: the page of the published study that the sweep repeats; its tables stand in the place
            of those of the cases.
    """
    for item in reports if study is None else ():
        _print_whole(console, render_table(item.case))
        console.print(short_legend(item.case), style="italic", markup=False)
        if any(point.mark for point in item.case.points):
            console.print(f"{MARK} processors may have been the limit", style="italic")
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
        title, names = each.title or None, map(str, each.rows.columns)
        table = Table(
            *names, title=title, title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0)
        )
        for row in each.rows.itertuples(index=False):
            table.add_row(*(escape(str(cell)) for cell in row))
        _print_whole(console, table)
        console.print(each.caption, style="italic", markup=False)
    for line in part.sentences:
        console.print(line, markup=False)


def verdict_text(item: CaseReport, *, alone: bool) -> str:
    """The headline with what belongs to it, then plain TensorFlow, and what was lost on the way.

    It begins with the case, unless that is alone.
    """
    told = item.verdict
    parts = (told.headline, told.reason, *told.otherwise, told.network)
    text = ("" if alone else f"{item.case.name}: ") + " ".join(filter(None, parts))
    return "\n".join([text, *told.stock, *loss_lines(item.case)])


def _show_what_is_missing(console: Console, results: SweepResults) -> None:
    if results.missing:
        planned = len(results.files.planned or ())
        console.print(
            f"Unfinished: {len(results.missing)} of {planned} planned runs are not made yet with "
            "this machine, software and measured program."
        )
    if results.older_blocks:
        left = [f"{block.fingerprint} ({len(block.table)} runs)" for block in results.older_blocks]
        console.print(f"Left out, of another machine, software or program: {', '.join(left)}.")


def _print_whole(console: Console, table: Table) -> None:
    """Print a table with all its columns; a terminal that is narrower folds the lines."""
    least = Measurement.get(console, console.options, table).minimum
    console.print(table, width=max(least, console.width), crop=False)
