"""`report.html`: one file that holds the verdict, the table, the figures and how they came about.

Decides that the file needs nothing beside it: figures stand in it as SVG that takes its colours
from the page.  What stands on which page is decided in `first_page` and `pages`, how it looks in
the templates.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from analysis.data.blocks import SweepResults
from analysis.data.columns import NO_TEXT
from analysis.figures.save import SavedFigure
from analysis.figures.style import IN_PAGE
from analysis.report.pages.first_page import key_numbers, warnings, with_verdict
from analysis.report.pages.page_parts import CaseReport, Page
from analysis.report.pages.pages import report_pages
from analysis.stats.decision import MARGIN
from analysis.stats.decisions import decisions
from analysis.stats.statistics import CONFIDENCE, MIN_LAUNCHES
from ps_allreduce.record.files import write_atomically

#: More warnings than these are folded: whoever reads a first page reads no list.
_MOST_WARNINGS = 5

TEMPLATES = Path(__file__).resolve().parent / "templates"


def write_report(
    path: Path,
    results: SweepResults,
    reports: Sequence[CaseReport],
    study: Page | None = None,
) -> None:
    """Write the report of a sweep; figures that only the report before it had are removed.

    Args:
        study: the page of the published study that it repeats.

    Raises:
        UserError: no permission, or no space left.
    """
    beside = [figure for part in (study.parts if study else ()) for figure in part.figures]
    drawn = [figure for report in reports for figure in report.figures]
    picture = next(iter([*beside, *drawn]), None)
    page = (
        _environment()
        .get_template("report.html.j2")
        .render(
            title=_title(results.name, reports, study),
            headlines=[line for part in (study.parts if study else ()) for line in part.sentences],
            reports=[(report, key_numbers(report.case)) for report in with_verdict(reports, study)],
            warnings=warnings(results, [(report.case, report.verdict) for report in reports]),
            most_warnings=_MOST_WARNINGS,
            picture=picture,
            pages=[*_without(study, picture), *report_pages(results, reports, picture)],
            confidence=round(CONFIDENCE * 100),
            min_launches=MIN_LAUNCHES,
            margin=round(MARGIN * 100),
            units=" and ".join(dict.fromkeys(report.case.unit for report in reports)),
        )
    )
    kept = {name for figure in (*beside, *drawn) for name in figure.files}
    outdated = _files_told(path) - kept
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
    """The sweep and its question; a published study has its own."""
    if study:
        return f"Study {name}"
    sides = any(decisions(report.case).main for report in reports)
    question = "parameter servers or all-reduce?" if sides else "which setting is fastest?"
    return f"Sweep {name}: {question}"


def _without(page: Page | None, picture: SavedFigure | None) -> list[Page]:
    """The page, if there is one, without the picture of the first page."""
    if page is None:
        return []
    parts = [
        replace(part, figures=[figure for figure in part.figures if figure is not picture])
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
