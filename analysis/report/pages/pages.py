"""The pages of a report: what stands on which, in which order.

Decides the order of the pages, and what those about the whole sweep hold.  A page that has nothing
to say is left out.  What is said of a case is decided in `case_pages`, what the first page says in
`first_page`, how pages look in the templates.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from analysis.data.blocks import SweepResults
from analysis.figures.save import SavedFigure
from analysis.report.pages.case_pages import CASE_PAGES
from analysis.report.pages.page_parts import CaseReport, Page, PagePart, TextTable
from analysis.report.tables.network_items import host_items, network_parts
from analysis.report.tables.provenance import (
    block_lines,
    provenance_items,
    repeat_lines,
    unusable_rows,
)


def report_pages(
    results: SweepResults, reports: Sequence[CaseReport], picture: SavedFigure | None
) -> list[Page]:
    """All pages after the first one that have something to say.

    Args:
        picture: what the first page shows; no other page repeats it.
    """
    pages = [
        Page(anchor=anchor, title=title, parts=[*_of_cases(anchor, part_of, reports, picture)])
        for (anchor, title), part_of in CASE_PAGES.items()
    ]
    pages += [
        Page(anchor=anchor, title=title, parts=part_of(results))
        for (anchor, title), part_of in SWEEP_PAGES.items()
    ]
    return [page for page in pages if page.parts]


def _of_cases(
    anchor: str,
    part_of: Callable[[CaseReport], PagePart],
    reports: Sequence[CaseReport],
    picture: SavedFigure | None,
) -> Iterator[PagePart]:
    for report in reports:
        shown = [each for each in report.figures if each.page == anchor and each is not picture]
        part = replace(part_of(report), figures=shown)
        if not part.is_empty:
            yield replace(part, heading=report.case.name if len(reports) > 1 else "")


def _network(results: SweepResults) -> list[PagePart]:
    block = results.block
    links = "Plain TCP right before the runs, all hosts of a run sending at once; slowest first."
    parts = [
        PagePart(
            heading=part.title,
            items=part.items,
            tables=[
                TextTable(rows=part.links, caption=links, folded=f"All links ({len(part.links)})")
            ],
        )
        for part in network_parts(block.table, block.records)
    ]
    hosts = host_items(block.records)
    return [*parts, *([PagePart(heading="Hosts", items=hosts)] if hosts else [])]


def _failed(results: SweepResults) -> list[PagePart]:
    rows, damaged = unusable_rows(results), results.files.damaged
    wraps = {"reason": "long", "log": "path"}
    unread = [f"Could not be read: {item.path}: {item.reason}" for item in damaged]
    if rows.empty and not unread:
        return [PagePart(sentences=["Every attempt ended well."])]
    return [PagePart(sentences=unread, tables=[TextTable(rows=rows, wraps=wraps)])]


def _provenance(results: SweepResults) -> list[PagePart]:
    return [
        PagePart(heading="To repeat it", code=repeat_lines(results)),
        PagePart(heading="Machine and software", items=provenance_items(results.block)),
        PagePart(heading="Blocks left out", sentences=block_lines(results)),
    ]


#: Of the whole sweep.
SWEEP_PAGES: Mapping[tuple[str, str], Callable[[SweepResults], list[PagePart]]] = {
    ("network", "Network and hosts"): _network,
    ("failed", "What did not end well"): _failed,
    ("provenance", "Provenance"): _provenance,
}
