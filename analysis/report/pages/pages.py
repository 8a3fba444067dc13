"""`report.html`: one file of pages, what stands on which, in which order.

Decides that the file needs nothing beside it: figures stand in it as SVG that takes its colours
from the page.  Decides the order of the pages, and what those about the whole sweep hold; a page
that has nothing to say is left out.  What a study tells is decided in `analysis.studies`, what is
said of a case in `case_pages`, what the first page says in `first_page`, how pages look in the
templates.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from analysis.data.blocks import SweepResults
from analysis.data.cases import Case
from analysis.data.columns import NO_TEXT
from analysis.figures.save import SavedFigure
from analysis.figures.style import IN_PAGE
from analysis.report.network_items import host_items, network_parts
from analysis.report.pages.case_pages import CASE_PAGES, speedup_lines
from analysis.report.pages.first_page import key_numbers, warnings, with_verdict
from analysis.report.pages.page_parts import CaseReport, Page, PagePart
from analysis.report.table import is_bounded
from analysis.report.what_was_run import (
    block_lines,
    provenance_items,
    repeat_lines,
    unusable_rows,
)
from analysis.stats.comparisons import comparisons
from analysis.stats.decision import MARGIN
from analysis.stats.rivals import contenders
from analysis.stats.setting_pairs import ladders
from analysis.stats.statistics import CONFIDENCE, MIN_LAUNCHES
from analysis.studies import SHOWN
from analysis.studies.shown import SMALL_FORM
from analysis.wording import TextTable
from ps_allreduce.record.files import write_atomically

#: More warnings than these are folded: whoever reads a first page reads no list.
_MOST_WARNINGS = 5

TEMPLATES = Path(__file__).resolve().parent / "templates"

ANCHOR, TITLE = "published", "What the study shows"


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
    parts = network_parts(block.table, block.records)
    hosts = host_items(block.records)
    return [*parts, *([PagePart(heading="Hosts", items=hosts)] if hosts else [])]


def _failed(results: SweepResults) -> list[PagePart]:
    rows, damaged = unusable_rows(results), results.files.damaged
    wraps = {"reason": "long", "log": "path"}
    unread = [f"Could not be read: {item.path}: {item.reason}" for item in damaged]
    part = PagePart(sentences=unread, tables=[TextTable(rows=rows, wraps=wraps)])
    return [] if part.is_empty else [part]


def _provenance(results: SweepResults) -> list[PagePart]:
    parts = [
        PagePart(heading="To repeat it", code=repeat_lines(results)),
        PagePart(heading="Machine and software", items=provenance_items(results.block)),
        PagePart(heading="Blocks left out", sentences=block_lines(results)),
    ]
    return [part for part in parts if not part.is_empty]


#: Of the whole sweep.
SWEEP_PAGES: Mapping[tuple[str, str], Callable[[SweepResults], list[PagePart]]] = {
    ("network", "Network and hosts"): _network,
    ("failed", "What did not end well"): _failed,
    ("provenance", "Provenance"): _provenance,
}


def study_page(results: SweepResults, cases: Sequence[Case]) -> Page | None:
    """The page, whose figures are saved; None for a sweep whose study shows nothing of its own.

    Raises:
        UserError: no permission, or no space left.
    """
    study = SHOWN.get(results.name)
    if study is None:
        return None
    shown = study.show(cases)
    folder = results.files.folder
    is_small = (results.block.table["profile"] == SMALL_FORM).any()
    own = study.small_form if is_small else ()
    told = PagePart(
        sentences=shown.sentences,
        tables=shown.tables,
        figures=[each.save(folder, results.name, ANCHOR) for each in shown.figures],
        notes=[f"The original: {study.source}", *study.differences, *own],
    )
    return Page(anchor=ANCHOR, title=TITLE, parts=[told])


def write_report(
    path: Path,
    results: SweepResults,
    reports: Sequence[CaseReport],
    study: Page | None = None,
    ahead: Page | None = None,
) -> None:
    """Write the report of a sweep; figures that only the report before it had are removed.

    Args:
        study: the page of its study, if that shows something of its own.
        ahead: the page about more hosts.

    Raises:
        UserError: no permission, or no space left.
    """
    drawn = [*_figures_of(study), *(figure for report in reports for figure in report.figures)]
    picture = drawn[0] if drawn else None
    pages = [
        *_without(study, picture),
        *([ahead] if ahead else []),
        *report_pages(results, reports, picture),
    ]
    text = (
        _environment()
        .get_template("report.html.j2")
        .render(
            title=_title(results.name, reports, study),
            headlines=[line for part in (study.parts if study else ()) for line in part.sentences],
            reports=[(report, key_numbers(report.case)) for report in with_verdict(reports, study)],
            warnings=warnings(results, [(report.case, report.verdict) for report in reports]),
            most_warnings=_MOST_WARNINGS,
            picture=picture,
            pages=pages,
            **_method([report.case for report in reports], study),
        )
    )
    _replace(path, text, [*drawn, *_figures_of(ahead)])


def _method(cases: Sequence[Case], study: Page | None) -> Mapping[str, object]:
    """What of the method the pages rest on."""
    rows = [row for case in cases for row in comparisons(case).rows]
    return {
        "units": " and ".join(dict.fromkeys(case.unit for case in cases)),
        "kinds": {row.kind.name for row in rows},
        "chosen": any(side.kind and len(side.points) > 1 for row in rows for side in row.sides),
        "early": any(row.level for row in rows),
        "leads": study is None and any(any(contenders(case)) for case in cases),
        "speedups": dict.fromkeys(line for case in cases for line in speedup_lines(case)),
        "bounded": any(map(is_bounded, cases)),
    }


def _figures_of(page: Page | None) -> list[SavedFigure]:
    return [figure for part in (page.parts if page else ()) for figure in part.figures]


def _replace(path: Path, page: str, figures: Sequence[SavedFigure]) -> None:
    """Write the page, and remove what only the one before it shows."""
    outdated = _files_told(path) - {name for figure in figures for name in figure.files}
    write_atomically(path, page.encode(errors=NO_TEXT))
    for name in outdated:
        with suppress(OSError):
            (path.parent / name).unlink()


def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"inline": inline_svg}
    environment.globals |= {
        "confidence": round(CONFIDENCE * 100),
        "min_launches": MIN_LAUNCHES,
        "margin": round(MARGIN * 100),
    }
    return environment


def _files_told(path: Path) -> set[str]:
    """Names of the figures that the report there tells of; none where there is no report."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return set()
    told = re.findall(r"Files: ([\w.+, -]+)\.</figcaption>", text)
    return {name for names in told for name in names.split(", ")}


def _title(name: str, reports: Sequence[CaseReport], study: Page | None) -> str:
    """The sweep and its question, where anything is compared; a study with a page has its own."""
    if study:
        return f"Study {name}"
    tables = [comparisons(report.case) for report in reports]
    if any(table.main for table in tables):
        return f"Sweep {name}: parameter servers or all-reduce?"
    if any(any(ladders(report.case)) for report in reports):
        return f"Sweep {name}: what does each rung bring?"
    is_asked = any(next(contenders(report.case), None) for report in reports)
    return f"Sweep {name}{': which setting is fastest?' * is_asked}"


def _without(page: Page | None, picture: SavedFigure | None) -> list[Page]:
    """The page, if there is one, without what the first page says and shows."""
    if page is None:
        return []
    parts = [
        replace(part, sentences=(), figures=[each for each in part.figures if each is not picture])
        for part in page.parts
    ]
    return [replace(page, parts=parts)]


def inline_svg(figure: SavedFigure) -> Markup:
    """A figure as an element of the page, in the page's colours and with names of its own."""
    text = figure.svg.read_text(encoding="utf-8")
    box = re.findall(r'viewBox="[^"]*"', text)[0]
    drawn = re.sub(r"<style.*?</style>", "", text.partition("</metadata>")[2])
    drawn = drawn.replace("xlink:href", "href")
    drawn = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{figure.svg.stem}-", drawn)
    for colour, in_page in IN_PAGE.items():
        drawn = drawn.replace(colour, in_page)
    return Markup(f'<svg role="img" aria-label="{escape(figure.described)}" {box}>{drawn}')
