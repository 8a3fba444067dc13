"""What pages of a report are made of: tables, parts, and what is told about one case.

Decides nothing but what is empty.  What stands on which page is decided in `case_pages` and
`pages`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from analysis.data.cases import Case, Point
from analysis.figures.save import SavedFigure
from analysis.report.verdict import Verdict
from analysis.report.what_was_run import Items
from analysis.wording import TextTable
from ps_allreduce.record.choices import ExchangeChoice


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PagePart:
    """What a page says of one thing, from top to bottom.

    Attributes:
        heading: empty where the page is about one thing only.
        code: lines to be typed.
        sliders: what their script needs, as JSON; empty where there are none.
    """

    heading: str = ""
    sentences: Sequence[str] = ()
    items: Items = field(default_factory=list)
    tables: Sequence[TextTable] = ()
    figures: Sequence[SavedFigure] = ()
    code: Sequence[str] = ()
    sliders: str = ""
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
        traces: files of traced steps by their points.
        exchanges: how gradients of its model travel, as far as `auto` chose it.
    """

    case: Case
    verdict: Verdict
    figures: Sequence[SavedFigure]
    traces: Mapping[Point, Path] = field(default_factory=dict)
    exchanges: Sequence[ExchangeChoice] = ()
