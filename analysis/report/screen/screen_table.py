"""The table on the screen: the same rows as in the report, as far as they fit.

Decides which columns stand on a screen and how their headings are shortened.
"""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd
from rich import box
from rich.table import Table

from analysis.data.cases import Case
from analysis.report.sentences.sizes import scaling_lines_of
from analysis.report.tables.table import (
    POINT,
    heading_of,
    is_bounded,
    on_several_hosts,
    pairs_lines,
    text_table,
    worth_showing,
)

#: Columns of the narrowest screen, or of a log: what does not fit is in the report.
SCREEN_WIDTH = 80

#: They fold and keep their words whole, however narrow the screen; the first takes what is left.
_FOLDED = ("setting", "ok")

_ON_SCREEN: tuple[str, ...] = (
    *(*POINT, "threads", "rate", "tokens", "ok", "speedup", "step_mean_s", "compute_s"),
    "communication_s",
)
#: The same for points on several hosts; without a bound, computation is shown in its place.
_ON_SCREEN_HOSTS = (
    *(*POINT, "num_hosts", "threads", "rate", "tokens", "ok", "speedup", "of_bound"),
    "communication_s",
)

#: Headings on the screen, where they are shorter there.
_SHORT: Mapping[str, str] = {
    "num_workers": "w",
    "num_hosts": "h",
    "threads": "t",
    "ok": "ok",
    "speedup": "speed-up",
    "of_bound": "bound",
    "compute_s": "comp ms",
    "communication_s": "comm ms",
}

#: What is short in them.
_ABBREVIATIONS: Mapping[str, str] = {
    "num_workers": "w: workers",
    "num_hosts": "h: hosts",
    "threads": "t: threads of a worker",
    "ok": "ok: launches that are ok, of those planned",
    "compute_s": "comp: compute",
    "communication_s": "comm: exposed communication",
    "of_bound": "bound: the share of it that was reached, 1 is as fast as links and compute allow",
}


def render_table(case: Case) -> Table:
    """The table for the screen."""
    text, names = text_table(case), _names_on_screen(case)
    table = Table(box=box.SIMPLE_HEAD, padding=0)
    for name in names:
        heading = _heading_on_screen(case, name)
        if name == "ok":
            table.add_column(heading, width=_least_width(case, text, name))
        elif name in _FOLDED:
            table.add_column(heading, min_width=_least_width(case, text, name))
        else:
            table.add_column(heading, justify="right", no_wrap=True)
    for row in text[names].itertuples(index=False):
        table.add_row(*row)
    return table


def _names_on_screen(case: Case) -> list[str]:
    """As many columns as the narrowest screen has room for."""
    shown = _ON_SCREEN_HOSTS if on_several_hosts(case) else _ON_SCREEN
    shown = tuple(name for name in shown if worth_showing(case, name))
    names = ["compute_s" if n == "of_bound" and not is_bounded(case) else n for n in shown]
    text = text_table(case)
    # There is a blank between columns, and at either end.
    while sum(_least_width(case, text, name) + 1 for name in names) >= SCREEN_WIDTH:
        names.pop()
    return names


def _least_width(case: Case, text: pd.DataFrame, name: str) -> int:
    words = text[name].str.split().explode() if name in _FOLDED else text[name]
    return max(int(words.str.len().max()), len(_heading_on_screen(case, name)))


def _heading_on_screen(case: Case, name: str) -> str:
    return _SHORT.get(name) or heading_of(case, name)


def short_legend(case: Case) -> str:
    """What is short in the table for the screen, and what its speed-up leaves out."""
    meanings = [_ABBREVIATIONS[name] for name in _names_on_screen(case) if name in _ABBREVIATIONS]
    short = ", ".join(meanings).format(unit=case.unit)
    return " ".join([f"{short}.", *scaling_lines_of(case), *pairs_lines(case, ["single"])])
