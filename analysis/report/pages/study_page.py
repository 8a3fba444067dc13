"""The page of a study from the literature: its numbers beside those of the sweep.

Decides where its figures are saved, and what of it a screen shows.  What it tells is decided in
`analysis.published`; its sentences are the headline of the report.
"""

from __future__ import annotations

from collections.abc import Sequence

from analysis.data.blocks import SweepResults
from analysis.data.cases import Case
from analysis.figures.save import save_with_data
from analysis.published.catalogue import PUBLISHED
from analysis.report.pages.page_parts import Page, PagePart, TextTable

ANCHOR, TITLE = "published", "Beside the published numbers"


def study_page(results: SweepResults, cases: Sequence[Case]) -> Page | None:
    """The page, whose figures are saved; None for a sweep that repeats no published study.

    Raises:
        UserError: no permission, or no space left.
    """
    study = PUBLISHED.get(results.name)
    if study is None:
        return None
    shown = study.show(cases)
    tables = [
        TextTable(rows=each.rows, title=each.title, caption=each.caption) for each in shown.tables
    ]
    figures = [
        save_with_data(
            each.figure,
            each.data,
            (each.title, f"{each.title}, {results.name}", each.caption),
            results.files.folder / each.name,
            ANCHOR,
        )
        for each in shown.figures
    ]
    told = PagePart(
        sentences=shown.sentences,
        tables=tables,
        figures=figures,
        notes=[f"The original: {study.source}", *study.differences],
    )
    return Page(anchor=ANCHOR, title=TITLE, parts=[told])
