"""The study of shallow ports: what they leave of the rate, for the sweep `incast`.

Decides what each point is compared with: the same senders with the same congestion control behind
the deepest port that was measured.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.data.cases import Case, Point
from analysis.data.setting import full_label
from analysis.figures.curves import curves_of
from analysis.figures.marks import data_of
from analysis.figures.style import INK
from analysis.stats.explained_parts import lost_shares
from analysis.stats.points import mean_rate
from analysis.studies.shown import (
    Shown,
    beside_base,
    intervals,
    marks_from,
    over_base,
    plot_panels,
    shown_study,
    texts_of,
)
from analysis.wording import bytes_text, number, ratio
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.network import EmulatedNetwork

TEXTS = texts_of("incast")

#: Congestion controls in the order of the panels.
NAMES = {"cubic": "CUBIC", "reno": "Reno", "bbr": "BBR"}


def _show(cases: Sequence[Case]) -> Shown:
    points = [point for case in cases for point in case.points if point.experiment.network]
    rows = pd.DataFrame([*_rows(points)])
    if rows.empty:
        return Shown(sentences=["No port buffer was measured: the study needs emulated hosts."])
    order = {name: place for place, name in enumerate(NAMES.values())}
    rows = rows.sort_values(
        ["control", "senders", "buffer"],
        key=lambda own: own.map(order).fillna(len(order)) if own.name == "control" else own,
        kind="stable",
    )
    return Shown(
        sentences=[*_sentences(rows), *_missing(rows)],
        tables=[TEXTS.table("table", _text(rows))],
        figures=[TEXTS.figure("figure", _drawn(rows), data_of(rows))],
    )


def _rows(points: Sequence[Point]) -> Iterator[dict[str, object]]:
    """Points, each beside the same behind the deepest port."""
    deepest = max((_network(p.experiment).port_buffer_bytes for p in points), default=0)
    for point, base in beside_base(
        points, lambda p: _network(p.experiment).port_buffer_bytes == deepest, _alike
    ):
        network = _network(point.experiment)
        spread = point.known("step_time_p95_s") / point.known("step_time_p50_s")
        yield {
            "senders": full_label(point.experiment.strategy),
            "control": NAMES.get(network.congestion, network.congestion),
            "buffer": network.port_buffer_bytes,
            "rate": mean_rate(point),
            **over_base("kept", point.rates, base.rates),
            "lost": _lost(point),
            "spread": float(spread.mean()),
        }


def _lost(point: Point) -> float:
    """Segments lost per thousand sent; NaN if no host counts them."""
    counted = point.launches["segments_sent"].notna()
    return 1e3 * float(lost_shares(point.launches)[counted].mean())


def _network(experiment: Experiment) -> EmulatedNetwork:
    assert experiment.network is not None
    return experiment.network


def _alike(experiment: Experiment) -> tuple[str, str, int]:
    control = _network(experiment).congestion
    return full_label(experiment.strategy), control, experiment.num_workers


def _sentences(rows: pd.DataFrame) -> Iterator[str]:
    """What is kept behind the shallowest port, for all that is sent under each control."""
    if rows["buffer"].nunique() == 1:
        return
    shallowest = rows[rows["buffer"] == rows["buffer"].min()]
    for control, own in shallowest.groupby("control", sort=False):
        kept = intervals(own, ["kept", "low", "high"], ratio)
        told = "; ".join(f"{who} {each}" for who, each in zip(own["senders"], kept, strict=True))
        yield (
            f"{control}, ports of {bytes_text(own['buffer'].iloc[0])}, rate over that behind the "
            f"deepest: {told}."
        )


def _missing(rows: pd.DataFrame) -> Iterator[str]:
    missing = [name for name in NAMES.values() if name not in set(rows["control"])]
    if missing:
        yield (
            f"{' and '.join(missing)} left out: not offered by the kernel, or without a launch "
            "behind the deepest port."
        )


def _text(rows: pd.DataFrame) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "sent": rows["senders"],
            "TCP": rows["control"],
            "port": rows["buffer"].map(bytes_text),
            "images/s": rows["rate"].map(number),
            "kept": intervals(rows, ["kept", "low", "high"], ratio),
            "lost": rows["lost"].map(lambda lost: ratio(lost, 1)),
            "spread": rows["spread"].map(ratio),
        }
    )


def _drawn(rows: pd.DataFrame) -> Figure:
    buffers = sorted(set(rows["buffer"]))
    marks = marks_from(rows, rows["kept"])
    marks = marks.assign(x=marks["buffer"].map(buffers.index), label=marks["senders"])
    labels = sorted(set(marks["label"]))
    panels = {
        str(control): curves_of(own, labels)
        for control, own in marks.groupby("control", sort=False)
    }

    def at_one(axes: Axes, _: str) -> None:
        axes.axhline(1.0, color=INK, linewidth=0.8)

    return plot_panels(
        panels,
        {
            place: bytes_text(each).replace(" kB", "k").replace(" MB", "M")
            for place, each in enumerate(buffers)
        },
        ("buffer of a port, bytes", "rate relative to the deepest"),
        at_one,
    )


INCAST = shown_study("incast", _show)
