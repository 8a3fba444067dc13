"""The study of device, link, model and precision: compute beside transfer, for the sweep `network`.

Decides how emulated devices and links are named: as what they stand for.  The original's text has
no numbers, so there are none beside ours.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from analysis.data.cases import Case, Point
from analysis.figures.marks import data_of, draw_launches
from analysis.figures.point_rows import name_rows
from analysis.figures.style import (
    COLOURS,
    FAINT,
    INK,
    MARKERS,
    PAPER,
    legend_of_figure,
    logarithmic,
    new_figure,
    style,
)
from analysis.stats.statistics import estimate
from analysis.studies.shown import (
    Shown,
    intervals,
    launched,
    model_name,
    shown_study,
    texts_of,
)
from analysis.wording import number, rate_text, ratio
from ps_allreduce.point.accelerators import SPEEDS
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.models.weights import ScaledModel

TEXTS = texts_of("network")

_UNMEASURED = "not measured"

#: Two numbers are the same speed if they differ by less than this share.
_SAME = 0.01

#: What is drawn beside the measured step.
TIMES = {"compute_ms": "compute of the device", "transfer_ms": "transfer on the link"}

#: Inches: of a row, and of what is around all rows.
_ROW_HEIGHT, _AROUND = 0.22, 1.4


def _show(cases: Sequence[Case]) -> Shown:
    points = launched(cases)
    sending = [point for point in points if point.experiment.strategy.communicates()]
    rows = pd.DataFrame([_row(point) for point in sending])
    if rows.empty:
        return Shown()
    rows = rows.sort_values(["model", "compute_ms", "link"], ascending=[True, False, True])
    data = data_of(rows.rename(columns={"steps_ms": "launches"}))
    return Shown(
        sentences=[*_sentences(rows)],
        tables=[TEXTS.table("table", _text(rows))],
        figures=[
            TEXTS.figure("figure", _drawn(rows), data.rename(columns={"launches": "steps_ms"}))
        ],
    )


def _sentences(rows: pd.DataFrame) -> Iterator[str]:
    """Of each device, how much of a step computes on its slowest and its fastest link."""
    for (model, device), own in rows.groupby(["model", "device"], sort=False):
        shares = own["compute_ms"] / own["step_ms"]
        names = own["link"].map(_link_text).replace(_UNMEASURED, "links that were not measured")
        on_links = [f"{share:.0%} on {name}" for share, name in zip(shares, names, strict=True)]
        yield f"{model}, {device}: of a step compute takes {', '.join(on_links)}."


def _row(point: Point) -> dict[str, object]:
    rates = estimate(point.rates)
    examples_ms = 1e3 * point.experiment.global_batch
    return {
        "device": device_name(point.experiment),
        "model": model_name(point.experiment),
        "link": _link(point),
        "workers": point.num_workers,
        "compute_ms": 1e3 * _computed_s(point),
        "transfer_ms": 1e3 * point.known("network_s").mean(),
        "step_ms": examples_ms / rates.mean,
        "step_low_ms": math.nan if rates.high is None else examples_ms / rates.high,
        "step_high_ms": math.nan if rates.low is None else examples_ms / rates.low,
        "steps_ms": tuple(examples_ms / point.rates),
        "mean_rate": rates.mean,
        "highest_rate": point.rates.max(),
    }


def _computed_s(point: Point) -> float:
    """Of a step: as an emulated device was asked to, else what was measured."""
    load = point.experiment.of_each
    if load.emulated is None:
        return float(point.known("compute_s").mean())
    return load.accumulation * (load.emulated.forward_s + load.emulated.backward_s)


def device_name(experiment: Experiment) -> str:
    """The accelerator whose published speed an emulated one has; else what was used."""
    load = experiment.workload
    if load.emulated is None:
        return f"{experiment.resources.device}, {load.precision}"
    rate = load.batch_per_worker / (load.emulated.forward_s + load.emulated.backward_s)
    like = (
        str(speed)
        for speed in SPEEDS
        if speed.model == model_name(experiment)
        and math.isclose(speed.images_per_sec, rate, rel_tol=_SAME)
    )
    return next(like, f"emulated, {rate:.3g} images/s")


def _link(point: Point) -> float:
    """Bits per second of what the link stands for: links are divided as variables are."""
    model, network = point.experiment.workload.model, point.experiment.network
    divisor = model.divisor if isinstance(model, ScaledModel) else 1
    if network is not None and network.bits_per_s is not None:
        return network.bits_per_s * divisor
    return float(point.known("link_bits_per_s").mean()) * divisor


def _text(rows: pd.DataFrame) -> pd.DataFrame:
    """The table that readers see."""
    return pd.DataFrame(
        {
            "model, device": rows["model"] + ", " + rows["device"],
            "link": rows["link"].map(_link_text),
            "compute": rows["compute_ms"].map(_short),
            "transfer": rows["transfer_ms"].map(_short),
            "step": intervals(rows, ["step_ms", "step_low_ms", "step_high_ms"], _short),
            "share": (rows["compute_ms"] / rows["step_ms"]).map(ratio),
            "images/s": rows["mean_rate"].map(_short),
            "highest": rows["highest_rate"].map(_short),
        }
    )


def _short(value: float | None) -> str:
    """Three digits, and no fraction from 100 on; a dash where it is not known."""
    return f"{value:.0f}" if value is not None and value >= 100 else number(value)


def _link_text(bits_per_s: float) -> str:
    return _UNMEASURED if math.isnan(bits_per_s) else rate_text(bits_per_s)


def _drawn(rows: pd.DataFrame) -> Figure:
    places = range(len(rows))
    names = zip(rows["model"], rows["device"], rows["link"].map(_link_text), strict=True)
    with style():
        figure, (axes,) = new_figure(1, 1, _AROUND + _ROW_HEIGHT * len(rows))
        # The mean step as a stroke from its compute on, and each launch.
        axes.hlines(places, rows["compute_ms"], rows["step_ms"], color=FAINT, linewidth=2)
        axes.plot(rows["step_ms"], places, "|", color=INK, ms=11, mew=2, label="measured step")
        for place, steps in zip(places, rows["steps_ms"], strict=True):
            draw_launches(axes, steps, [place] * len(steps), FAINT, shift=(0, 0))
        known = {column: label for column, label in TIMES.items() if rows[column].notna().any()}
        for place, (column, label) in enumerate(known.items()):
            look: dict[str, Any] = {"marker": MARKERS[place + 1], "color": COLOURS[place]}
            axes.plot(rows[column], places, **look, ls="none", mec=PAPER, ms=7, label=label)
        name_rows(axes, [", ".join(name) for name in names])
        logarithmic(axes.xaxis)
        axes.set_xlabel("milliseconds of a step")
        legend_of_figure(figure, [axes], columns=3)
    return figure


NETWORK = shown_study("network", _show)
