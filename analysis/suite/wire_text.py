"""What is printed of the sweep `wire`: its rows, its targets, and where plain TensorFlow is faster.

Decides which rows are held against plain TensorFlow: those that train alike, synchronously or not,
on equally many workers and servers, and send equally much.  Of a slower one, the rung of the ladder
that costs most is its cause.  Whether a row reaches its target is decided in `wire_targets`.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import pandas as pd

from analysis.suite.wire_targets import Sending
from analysis.wording import count_text
from ps_allreduce.point.strategies import STRATEGIES

#: Points that agree in these differ in how they send.
_SHAPE = ["purpose", "num_workers", "num_ps", "layout", "gradient_bytes", "num_tensors"]

#: Rows of the suite and of plain TensorFlow are of one point if they agree in these.
_POINT = [
    *("synchronous", "num_workers", "num_ps", "ps_per_host", "layout"),
    *("gradient_bytes", "num_tensors", "compute_s"),
]

#: The rungs of the ladder, upwards; of each pair of neighbours in brackets, a side has one.
_RUNGS = (
    *(Sending.AS_SHIPPED, Sending.FUSED, Sending.UNBUCKETED, Sending.PACKS),
    *(Sending.UNLIMITED, Sending.BUCKETS),
)

#: What is changed from one rung to the next.
_CHANGES = {
    Sending.FUSED: "the fused optimizer",
    Sending.UNBUCKETED: "the suite's step, unbucketed",
    Sending.PACKS: "the suite's step, one pack",
    Sending.UNLIMITED: "buckets",
    Sending.BUCKETS: "the limit of messages in flight",
}

#: Columns of the screen: heading, column of the table, what it is divided by, digits.
_SHOWN = (
    *(("workers", "num_workers", 1, 0), ("ps", "num_ps", 1, 0), ("per host", "ps_per_host", 1, 0)),
    *(("MB", "gradient_bytes", 1e6, 0), ("tensors", "num_tensors", 1, 0)),
    *(("compute s", "compute_s", 1, 3), ("step s", "step_s", 1, 3), ("bound s", "bound_s", 1, 3)),
    *(("fraction", "fraction_of_bound", 1, 3), ("busy", "machine_busy", 1, 2)),
    *(("CPU s/GB", "cpu_s_per_gigabyte", 1, 2), ("Gbit/s per core", "core_bits_per_s", 1e9, 2)),
    ("target", "target", 1, 2),
)


def render_wire(table: pd.DataFrame) -> list[str]:
    """All points, then a line per target, and what the processors are the limit of."""
    shown = pd.DataFrame({"strategy": table["strategy"], "layout": table["layout"].fillna("")})
    for heading, column, size, digits in _SHOWN:
        values = table[column].astype(float) / size
        shown[heading] = ["-" if pd.isna(value) else f"{value:.{digits}f}" for value in values]
    shown["verdict"] = [_verdict(*row) for row in table[["sending", "met", "reason"]].values]
    aimed = table[table["target"].notna()]
    return [
        *shown.to_string(index=False).splitlines(),
        *(f"{_words(row)}: {row['reason']}" for _, row in table[table["reason"] != ""].iterrows()),
        *(_summary(str(purpose), rows) for purpose, rows in aimed.groupby("purpose")),
        *(line for _, rows in table.groupby("strategy") for line in _cost(rows)),
        *_stock_lines(table),
        *_to_measure_again(table),
    ]


def _verdict(sending: str, met: bool | None, reason: str) -> str:
    if reason:
        return "no figures"
    if sending != Sending.BUCKETS:
        return sending
    return {None: "", True: "met", False: "missed"}[met]


def _summary(purpose: str, rows: pd.DataFrame) -> str:
    """How many points of a purpose reach their target, and the worst of them."""
    met = sum(value is True for value in rows["met"])
    text = f"{purpose}: {met} of {len(rows)} rows reach {rows['target'].iloc[0]:.2f}"
    complete = rows[rows["reason"] == ""]
    if len(complete) < len(rows):
        text += f"; {len(rows) - len(complete)} came to nothing"
    if len(complete):
        worst = complete.iloc[int(complete["fraction_of_bound"].argmin())]
        text += f"; worst {worst['fraction_of_bound']:.3f} ({_words(worst)})"
    return text


def _words(row: pd.Series) -> str:
    """The name of a row."""
    servers = f", {row['num_ps']} ps {row['layout']}" if row["num_ps"] else ""
    contrast = row["sending"] not in (Sending.BUCKETS, Sending.AS_SHIPPED)
    return (
        f"{row['purpose']}{', ' * contrast}{row['sending'] * contrast}, "
        f"{row['num_workers']} workers{servers}, "
        f"{row['gradient_bytes'] / 1e6:.0f} MB in {row['num_tensors']} tensors"
    )


def _cost(rows: pd.DataFrame) -> Iterator[str]:
    """Processor time of a strategy in buckets, and beside the same points sent otherwise."""
    in_buckets = rows["sending"] == Sending.BUCKETS
    suite, others = rows[in_buckets], rows[~in_buckets]
    rates = suite["core_bits_per_s"].dropna() / 1e9
    if rates.empty:
        return
    text = (
        f"{rows['strategy'].iloc[0]}: one core per host keeps up with links of "
        f"{rates.median():.2f} Gbit/s ({rates.min():.2f} to {rates.max():.2f})"
    )
    both = suite.merge(others, on=_SHAPE, suffixes=("", "_other"))
    shares = (both["cpu_s_per_gigabyte"] / both["cpu_s_per_gigabyte_other"]).dropna()
    if len(shares):
        text += f"; processor time per byte {shares.mean():.2f} of {both['sending_other'].iloc[0]}"
    yield text


def _stock_lines(table: pd.DataFrame) -> Iterator[str]:
    """How many rows are slower, and each of them beside plain TensorFlow; nothing without any."""
    good = _good(table)
    both = _beside_stock(good)
    if both.empty:
        return
    slower = both[both["step_s"] > both["step_s_stock"]]
    yield (
        f"{len(slower)} of {count_text(len(both), 'row')} of the suite are slower than plain "
        f"TensorFlow at the same point{':' * bool(len(slower))}"
    )
    for _, row in slower.iterrows():
        yield (
            f"  {_words(row)}: {row['step_s']:.3f} s, {row['strategy_stock']} "
            f"{row['step_s_stock']:.3f} s: {row['step_s'] / row['step_s_stock']:.2f} times as long"
            f"{_cause(row, good)}"
        )


def _good(table: pd.DataFrame) -> pd.DataFrame:
    """The rows that have figures, and whether they train synchronously."""
    good = table[table["reason"] == ""].fillna({"layout": ""})
    return good.assign(synchronous=[STRATEGIES[each].synchronous for each in good["strategy"]])


def _beside_stock(good: pd.DataFrame) -> pd.DataFrame:
    """Rows of the suite with those of plain TensorFlow at their point."""
    shipped, altered = (good["sending"] == each for each in (Sending.AS_SHIPPED, Sending.FUSED))
    return good[~shipped & ~altered].merge(good[shipped], on=_POINT, suffixes=("", "_stock"))


def _cause(row: pd.Series, good: pd.DataFrame) -> str:
    """The rung on the way to a row that makes steps longer than any other, by how much."""
    at_point = good[(good[_POINT] == row[_POINT]).all(axis=1)].set_index("sending")["step_s"]
    climbed = [rung for rung in _RUNGS[: _RUNGS.index(row["sending"]) + 1] if rung in at_point]
    costs = {after: at_point[after] / at_point[before] for before, after in pairwise(climbed)}
    worst = max(costs, key=costs.__getitem__)
    return f"; most by {_CHANGES[worst]} ({costs[worst]:.2f})"


def _to_measure_again(table: pd.DataFrame) -> Iterator[str]:
    """Launches whose links were mismeasured stay in the way until their records are gone."""
    if paths := list(table["mismeasured"].explode().dropna()):
        yield "To measure these again, move the records away and give the same command:"
        yield from (f"  {path}" for path in paths)
