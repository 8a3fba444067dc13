"""The pages of a report: what stands on which, in which order.

Decides the order of the pages and what of a case, or of the whole sweep, each of them holds.  A
page that has nothing to say is left out.  What the first page says is decided in `first_page`, how
pages look in the templates.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pandas as pd

from analysis.data.blocks import SweepResults
from analysis.data.cases import Case
from analysis.figures.save import SavedFigure
from analysis.report.comparisons import changed_rows, pair_rows
from analysis.report.network_items import host_items, network_parts
from analysis.report.provenance import block_lines, provenance_items, repeat_lines, unusable_rows
from analysis.report.table import legend, report_table, scaling_lines
from analysis.report.verdict import Verdict
from analysis.report.what_was_run import Items, what_was_run
from analysis.stats.points import PlacementPoint, placement_points
from analysis.stats.setting_pairs import without_changed
from analysis.stats.statistics import estimate
from analysis.wording import number, ratio, with_interval
from ps_allreduce.record.exchanges import ExchangeChoice, exchange_sentence


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TextTable:
    """A table of a page.

    Attributes:
        rows: text, under headings.
        title: empty where the page's own says enough.
        folded: what stands in its place until a reader opens it; empty if it is open.
        wraps: columns of long text, with the class that says how they wrap.
    """

    rows: pd.DataFrame
    title: str = ""
    caption: str = ""
    folded: str = ""
    wraps: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PagePart:
    """What a page says of one thing, from top to bottom.

    Attributes:
        heading: empty where the page is about one thing only.
        code: lines to be typed.
    """

    heading: str = ""
    sentences: Sequence[str] = ()
    items: Items = field(default_factory=list)
    tables: Sequence[TextTable] = ()
    figures: Sequence[SavedFigure] = ()
    code: Sequence[str] = ()
    notes: Sequence[str] = ()

    @property
    def is_empty(self) -> bool:
        """It has nothing to show but notes."""
        tables = [table for table in self.tables if not table.rows.empty]
        return not any((self.sentences, self.items, tables, self.figures, self.code))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Page:
    """A section of the report with an entry in its table of contents."""

    anchor: str
    title: str
    parts: Sequence[PagePart]


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseReport:
    """What is reported about one case.

    Attributes:
        exchanges: how gradients of its model travel, as far as `auto` chose it.
    """

    case: Case
    verdict: Verdict
    figures: Sequence[SavedFigure]
    exchanges: Sequence[ExchangeChoice] = ()


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


def _results(report: CaseReport) -> PagePart:
    case = report.case
    changed = TextTable(
        rows=changed_rows(case),
        title="Changed settings",
        caption=f"Each setting against the one that it is changed from: ratio of {case.unit}/s "
        "with its interval; interval and p are corrected for all comparisons but the planned ones "
        "(Holm).",
    )
    return PagePart(
        tables=[TextTable(rows=report_table(case, "results")), changed],
        notes=[legend(case)],
    )


def _comparisons(report: CaseReport) -> PagePart:
    case = report.case
    pairs, apart = pair_rows(case), pair_rows(case, same_transport=False)
    left_out = (
        "Pairs are without the settings that the table of changed settings holds against theirs."
    )
    return PagePart(
        sentences=report.verdict.details,
        tables=[
            TextTable(
                rows=pairs,
                caption=f"Ratio of {case.unit}/s, first over second, with its interval; interval "
                "and p are corrected for all comparisons but the planned ones (Holm).",
                folded=f"All pairs of synchronous settings on the same transport ({len(pairs)})",
            ),
            TextTable(
                rows=apart,
                caption="What sets two settings on different transports apart may be the "
                "transport.",
                folded=f"Pairs on different transports ({len(apart)}), no part of the verdict",
            ),
        ],
        notes=[left_out] if without_changed(case) is not case else [],
    )


def _scaling(report: CaseReport) -> PagePart:
    return PagePart(
        tables=[TextTable(rows=report_table(report.case, "scaling"))],
        notes=scaling_lines(report.case),
    )


def _placement(report: CaseReport) -> PagePart:
    placed = placement_points(report.case)
    astray = [
        f"Not as planned, {each.point.experiment.title}: {line}"
        for each in placed
        for line in each.deviations
    ]
    rows = pd.DataFrame([_placement_row(each, report.case.unit) for each in placed])
    return PagePart(
        sentences=astray or ["No variable was elsewhere than planned."] * bool(placed),
        tables=[
            TextTable(
                rows=rows,
                caption="Trainable bytes per parameter server. Hottest over mean: 1.00 is "
                "balanced.",
                wraps={"planned bytes": "bytes", "read back": "bytes"},
            )
        ],
    )


def _breakdown(report: CaseReport) -> PagePart:
    return PagePart(
        tables=[
            TextTable(
                rows=report_table(report.case, "steps"),
                caption="Means over steps, workers and launches: compute, exposed communication "
                "and input wait add up to the step. Exposed communication is the rest of a step, "
                "so updates and dispatch are in it.",
                wraps={"steps of launches": "long"},
            ),
            TextTable(rows=report_table(report.case, "bounds"), title="Bounds by the links"),
        ]
    )


def _what_was_run(report: CaseReport) -> PagePart:
    chosen = [("auto", exchange_sentence(report.exchanges))] if report.exchanges else []
    return PagePart(items=what_was_run(report.case) + chosen)


def _placement_row(item: PlacementPoint, unit: str) -> dict[str, str]:
    rates = estimate(item.point.rates).ends if len(item.point.rates) else (None, None, None)
    used = "as planned" if item.as_planned else _bytes_text(item.worst.bytes_per_server)
    return {
        "setting": item.point.setting.label,
        "workers": str(item.point.num_workers),
        "servers": str(item.point.experiment.num_ps),
        "planned bytes": _bytes_text(item.planned_bytes),
        "read back": used,
        "hottest over mean": ratio(item.worst.max_over_mean),
        f"{unit}/s": with_interval(number, *rates),
    }


def _bytes_text(loads: Sequence[int]) -> str:
    return " + ".join(f"{load:,}".replace(",", "\N{NO-BREAK SPACE}") for load in loads)


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


#: Of every case: the anchor and the title of a page, and what it says.
CASE_PAGES: Mapping[tuple[str, str], Callable[[CaseReport], PagePart]] = {
    ("results", "Results"): _results,
    ("comparisons", "Comparisons"): _comparisons,
    ("scaling", "Scaling"): _scaling,
    ("placement", "Placement, planned and read back"): _placement,
    ("breakdown", "Where the time of a step goes"): _breakdown,
    ("run", "What was run"): _what_was_run,
}

#: Of the whole sweep.
SWEEP_PAGES: Mapping[tuple[str, str], Callable[[SweepResults], list[PagePart]]] = {
    ("network", "Network and hosts"): _network,
    ("failed", "What did not end well"): _failed,
    ("provenance", "Provenance"): _provenance,
}
