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
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.data.cases import Case, Point
from analysis.figures.rows import Row, draw_row
from analysis.figures.style import (
    COLOURS,
    INK,
    MARKERS,
    PAPER,
    legend_of_figure,
    new_figure,
    style,
)
from analysis.published.network import device_name
from analysis.published.study import (
    PublishedStudy,
    Shown,
    StudyFigure,
    StudyTable,
    model_name,
    rate_over,
    spaced,
)
from analysis.stats.points import mean_rate
from analysis.wording import number, ratio, with_interval
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.inputs.data import InputFiles
from ps_allreduce.point.inputs.data_set import Pipeline

TABLE = (
    "Rates of all workers, mean and highest launch. Relative: over the mean rate with synthetic "
    "images, with its interval. Wait: share of a step in which a worker waits for its batch."
)
CAPTION = (
    "Rate relative to that with synthetic images, by model and device; small circles are launches, "
    "bars 95 % intervals, with an arrow where one leaves the axis. At 1 reading costs nothing."
)

#: Of the axis; an interval of few launches may reach further.
MOST = 1.2

#: Inches: of a row, and of what is around all rows.
_ROW_HEIGHT, _AROUND = 0.24, 1.3

_RELATIVE = ["relative", "low", "high"]


def _show(cases: Sequence[Case]) -> Shown:
    points = [point for case in cases for point in case.points if len(point.rates)]
    rows = pd.DataFrame([*_rows(points)])
    if rows.empty:
        told = "Nothing can be held against synthetic images: state --input synthetic and others."
        return Shown(sentences=[told])
    rows = rows.sort_values(["of", "input"])
    figure = StudyFigure(
        name="relative-to-synthetic",
        title="What reading costs",
        caption=CAPTION,
        figure=_drawn(rows),
        data=rows.assign(launches=rows["launches"].map(spaced)),
    )
    return Shown(
        sentences=[*_sentences(rows)],
        tables=[StudyTable(rows=_text(rows), caption=TABLE)],
        figures=[figure],
    )


def _rows(points: Sequence[Point]) -> Iterator[dict[str, object]]:
    """Points that read files, beside the same with synthetic images."""
    names = _names(points)
    plain = {_trained(p.experiment): p for p in points if not _reads(p.experiment)}
    for point in points:
        data, base = point.experiment.workload.data, plain.get(_trained(point.experiment))
        if isinstance(data, InputFiles) and base is not None:
            read = ", ".join([names[data], *_changed(point.experiment.workload.pipeline)])
            yield {"input": read, **_row(point, base)}


def _reads(experiment: Experiment) -> bool:
    return isinstance(experiment.workload.data, InputFiles)


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
        **dict(zip(_RELATIVE, rate_over(point, base), strict=True)),
        "launches": tuple(point.rates / mean_rate(base)),
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
        return ["badly set"]
    return replace(pipeline, read_size=None).title_parts()


def _sentences(rows: pd.DataFrame) -> Iterator[str]:
    """Of each model on its device, the best and the worst way to read."""
    for of, own in rows.groupby("of", sort=False):
        best, worst = (own.loc[own["relative"].agg(pick)] for pick in ("idxmax", "idxmin"))
        yield (
            f"{of}: {ratio(best['relative'])} of the rate with synthetic images from "
            f"{best['input']}, {ratio(worst['relative'])} from {worst['input']}."
        )


def _text(rows: pd.DataFrame) -> pd.DataFrame:
    relative = rows[_RELATIVE].itertuples(index=False)
    return pd.DataFrame(
        {
            "model, device": rows["of"],
            "input": rows["input"],
            "images/s": rows["rate"].map(number),
            "highest": rows["highest"].map(number),
            "relative": [with_interval(ratio, *map(float, each)) for each in relative],
            "wait": rows["wait"].map(ratio),
        }
    )


def _drawn(rows: pd.DataFrame) -> Figure:
    inputs = list(dict.fromkeys(rows["input"]))
    places = {name: float(place) for place, name in enumerate(inputs)}
    with style():
        figure, (axes,) = new_figure(1, 1, _AROUND + 3 * _ROW_HEIGHT * len(inputs))
        axes.set_xlim(0.0, max(MOST, 1.03 * max(max(each) for each in rows["launches"])))
        groups = list(rows.groupby("of", sort=False))
        for place, (of, own) in enumerate(groups):
            shift = (place - (len(groups) - 1) / 2) * 0.7 / len(groups)
            _draw(axes, place, str(of), own, own["input"].map(places) + shift)
        axes.axvline(1.0, color=INK, linewidth=0.8)
        axes.set_yticks(list(places.values()), inputs)
        axes.set_ylim(len(inputs) - 0.4, -0.6)
        axes.grid(axis="x", visible=True)
        axes.set_xlabel("rate relative to synthetic images")
        legend_of_figure(figure, [axes])
    return figure


def _draw(axes: Axes, place: int, name: str, own: pd.DataFrame, heights: pd.Series) -> None:
    colour, marker = COLOURS[place], MARKERS[place]
    axes.plot([], [], marker, color=colour, mec=PAPER, label=name)
    relative = own[_RELATIVE].astype(object).where(own[_RELATIVE].notna(), None)
    ends = relative.itertuples(index=False, name=None)
    for height, launches, known in zip(heights, own["launches"], ends, strict=True):
        row = Row(y=height, launches=launches, ends=known, colour=colour, marker=marker)
        draw_row(axes, row, axes.get_xlim())


STORAGE = PublishedStudy(
    name="storage",
    source="Salvaris, Distributed Deep Learning: effects of storage and of data type; ResNet50 in "
    "three frameworks, V100, batch 64, local disks, NFS and Blob storage. Its text has no numbers.",
    differences=(
        "One framework, TensorFlow; the original also compared PyTorch and Keras.",
        "Storage is what the paths are on that --input names; the small form reads from the local "
        "disk only, and its files fit into memory, so a disk is read once.",
        "In the small form devices are emulated at published speeds, and both workers decode "
        "images with the two cores of one machine.",
        "Speeds in mixed precision are published ones; gradients travel in float32.",
    ),
    show=_show,
)
