"""Tables of pairs: every comparison that was decided, as text.

Decides how a pair is spelled, and that the faster setting of a pair comes first.  Which pairs there
are and what may be said of them is decided in `stats.decisions`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

import pandas as pd

from analysis.data.cases import Case
from analysis.report.sentences.sizes import each_text
from analysis.stats.decisions import Pair, all_pairs, changed_points
from analysis.stats.pairs.setting_pairs import varies_exchange
from analysis.stats.statistics import CONFIDENCE
from analysis.wording import NONE, outcome_text, ratio, with_interval

#: Stands below a table of pairs, after what its ratio is of.
CORRECTED = (
    "Interval and p are corrected for the number of comparisons (Holm 1979). A planned comparison, "
    "which the first page is about, is not corrected."
)

_COMPARED = {"workers": "workers", "ratio": f"ratio [{CONFIDENCE * 100:.0f} %]"}

#: Columns of the tables of pairs, and their headings.
_PAIRS = {"first": "first", "second": "second", **_COMPARED, "p": "p", "outcome": "first is"}
_PAIRS_APART = {**_PAIRS, "transports": "transports"}
_CHANGED = {"first": "setting", "second": "changed from", **_COMPARED, "n": "n"}
_CHANGED |= {"p": "p", "outcome": "setting is"}


def pair_rows(case: Case, *, same_transport: bool = True) -> pd.DataFrame:
    """A row for each pair of synchronous settings, on the same transport or on different ones."""
    headings = _PAIRS if same_transport else _PAIRS_APART
    pairs = all_pairs(case, same_transport=same_transport)
    return _rows([_faster_first(pair) for pair in pairs], headings)


def _faster_first(pair: Pair) -> Pair:
    if pair.decision.ratio is None or pair.decision.ratio >= 1:
        return pair
    swapped = replace(pair, first=pair.second, second=pair.first)
    return replace(swapped, decision=pair.decision.inverse())


def changed_rows(case: Case) -> pd.DataFrame:
    """A row for each setting of the exchange beside the one that it is changed from."""
    return _rows(changed_points(case) if varies_exchange(case) else (), _CHANGED)


def _rows(pairs: Iterable[Pair], headings: Mapping[str, str]) -> pd.DataFrame:
    rows = [
        {
            "first": pair.first.setting.label,
            "second": pair.second.setting.label,
            "workers": each_text([pair.first.num_workers, pair.second.num_workers]),
            "ratio": with_interval(ratio, *pair.decision.ends),
            "n": str(min(pair.decision.n_first, pair.decision.n_second)),
            "p": _p_text(pair),
            "outcome": outcome_text(pair.decision),
            "transports": pair.label,
        }
        for pair in pairs
    ]
    return pd.DataFrame(rows, columns=list(headings)).rename(columns=headings)


def _p_text(pair: Pair) -> str:
    p_value = pair.decision.p_value
    return NONE if p_value is None else f"{p_value:.2g}{' (planned)' * pair.planned}"
