"""Tables of comparisons: pairs of settings, and settings against those they are changed from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pandas as pd

from analysis.report.table import NONE, ratio_text
from analysis.stats.setting_pairs import Pair
from analysis.stats.statistics import CONFIDENCE

_COMPARED = {"workers": "workers", "ratio": f"ratio [{CONFIDENCE * 100:.0f} %]"}

#: Columns of the tables, and their headings.
PAIRS = {"first": "first", "second": "second", **_COMPARED, "p": "p (Holm)", "outcome": "first is"}
PAIRS_APART = {**PAIRS, "transports": "transports"}
CHANGED = {"first": "setting", "second": "changed from", **_COMPARED, "n": "n"}
CHANGED |= {"p": "p (Holm)", "outcome": "setting is"}


def pair_table(pairs: Iterable[Pair], headings: Mapping[str, str]) -> pd.DataFrame:
    """A row for each pair, as text."""
    rows = [
        {
            "first": pair.first.setting.label,
            "second": pair.second.setting.label,
            "workers": str(pair.first.num_workers),
            "ratio": ratio_text(pair.comparison),
            "n": str(min(pair.comparison.n_first, pair.comparison.n_second)),
            "p": NONE if pair.adjusted_p is None else f"{pair.adjusted_p:.2g}",
            "outcome": pair.outcome.value,
            "transports": pair.label,
        }
        for pair in pairs
    ]
    return pd.DataFrame(rows, columns=list(headings)).rename(columns=headings)
