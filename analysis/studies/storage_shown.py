"""The study of storage and formats: rates relative to synthetic images, for the sweep `storage`.

Decides how inputs and pipelines are named, and what each is held against: the same model on the
same device with synthetic images.  The original's text has no numbers, so there are none beside
ours.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pandas as pd
from matplotlib.figure import Figure

from analysis.data.cases import Case, Point
from analysis.figures.marks import data_of, note_signs
from analysis.figures.point_rows import draw_rows, name_rows
from analysis.figures.style import (
    COLOURS,
    INK,
    MARKERS,
    PAPER,
    legend_of_figure,
    new_figure,
    style,
)
from analysis.stats.points import mean_rate
from analysis.studies.network_shown import device_name
from analysis.studies.shown import (
    Shown,
    beside_base,
    intervals,
    launched,
    marks_from,
    model_name,
    over_base,
    shown_study,
    texts_of,
)
from analysis.wording import number, ratio, ratio_text
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.inputs.data import InputFiles
from ps_allreduce.point.inputs.data_set import Pipeline

TEXTS = texts_of("storage")

#: A pipeline that makes and keeps as little as it can.
BADLY = "badly set"

#: Of the axis; an interval of few launches may reach further.
MOST = 1.2

#: Inches: of a row, and of what is around all rows.
_ROW_HEIGHT, _AROUND = 0.24, 1.3


def _show(cases: Sequence[Case]) -> Shown:
    points = launched(cases)
    rows = pd.DataFrame([*_rows(points)])
    if rows.empty:
        told = "No rate from files stands beside one with synthetic images."
        return Shown(sentences=[told])
    rows = rows.sort_values(["of", "input"])
    return Shown(
        sentences=[*_sentences(rows)],
        tables=[TEXTS.table("table", _text(rows), more=_more(rows))],
        figures=[TEXTS.figure("figure", _drawn(rows), data_of(rows))],
    )


def _rows(points: Sequence[Point]) -> Iterator[dict[str, object]]:
    """Points that read files, beside the same with synthetic images."""
    names = _names(points)
    for point, base in beside_base(points, _is_synthetic, _trained):
        data = point.experiment.workload.data
        if isinstance(data, InputFiles):
            read = ", ".join([names[data], *_changed(point.experiment.workload.pipeline)])
            yield {"input": read, **_row(point, base)}


def _is_synthetic(point: Point) -> bool:
    return not isinstance(point.experiment.workload.data, InputFiles)


def _trained(experiment: Experiment) -> tuple[str, int, str]:
    """What two points share that differ in their input only."""
    return _of(experiment), experiment.num_workers, str(experiment.workload.precision)


def _of(experiment: Experiment) -> str:
    return f"{model_name(experiment)}, {device_name(experiment)}"


def _row(point: Point, base: Point) -> dict[str, object]:
    return {
        "of": _of(point.experiment),
        "rate": mean_rate(point),
        "highest": point.rates.max(),
        "synthetic": mean_rate(base),
        **over_base("relative", point.rates, base.rates),
        "wait": float(point.known("input_wait_s").mean() / point.known("mean_step_s").mean()),
    }


def _names(points: Sequence[Point]) -> dict[InputFiles, str]:
    """The format of files, and where there are several places of one format, their place."""
    loads = [point.experiment.workload.data for point in points]
    found = dict.fromkeys(each for each in loads if isinstance(each, InputFiles))
    kinds = Counter(type(each) for each in found)
    return {
        each: each.title + (f", {each.path}" if kinds[type(each)] > 1 else "") for each in found
    }


def _changed(pipeline: Pipeline) -> list[str]:
    if pipeline.prefetch == 0 and pipeline.parallel_maps == 1:
        return [BADLY]
    return replace(pipeline, read_size=None).title_parts()


def _sentences(rows: pd.DataFrame) -> Iterator[str]:
    """Of each model on its device, the ways to read with the highest and the lowest mean."""
    for of, own in rows.groupby("of", sort=False):
        ends = (own.loc[own["relative"].agg(pick)] for pick in ("idxmax", "idxmin"))
        told = dict.fromkeys(
            f"{ratio_text(end['relative'], end['low'], end['high'])} from {end['input']}"
            for end in ends
        )
        yield f"{of}: means of {' to '.join(told)}, of the rate with synthetic images."


def _more(rows: pd.DataFrame) -> str:
    return f" {TEXTS.said['badly']}" * bool(rows["input"].str.contains(BADLY).any())


def _text(rows: pd.DataFrame) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "model, device": rows["of"],
            "input": rows["input"],
            "images/s": rows["rate"].map(number),
            "highest": rows["highest"].map(number),
            "relative": intervals(rows, ["relative", "low", "high"], ratio),
            "wait": rows["wait"].map(ratio),
        }
    )


def _drawn(rows: pd.DataFrame) -> Figure:
    inputs = list(dict.fromkeys(rows["input"]))
    right = max(MOST, 1.03 * max(max(each) for each in rows["launches"]))
    with style():
        figure, (axes,) = new_figure(1, 1, _AROUND + 3 * _ROW_HEIGHT * len(inputs))
        marks = marks_from(rows, rows["relative"])
        groups = list(marks.groupby("of", sort=False))
        for place, (of, own) in enumerate(groups):
            shift = (place - (len(groups) - 1) / 2) * 0.7 / len(groups)
            look = COLOURS[place], MARKERS[place]
            axes.plot([], [], look[1], color=look[0], mec=PAPER, label=of)
            on_rows = own.assign(y=own["input"].map(inputs.index) + shift)
            draw_rows(axes, on_rows, look, (0.0, right), counted=False)
        axes.axvline(1.0, color=INK, linewidth=0.8)
        name_rows(axes, inputs)
        axes.set_xlim(0.0, right)
        axes.set_xlabel("rate relative to synthetic images")
        note_signs(axes, marks)
        legend_of_figure(figure, [axes])
    return figure


STORAGE = shown_study("storage", _show)
