"""The study of CLAIX: epochs of training and evaluation, and POP metrics, for the sweep `claix`.

Decides how an epoch is put together from the rates of both phases, and the bound that a sequential
evaluation sets.

With T seconds of training and V of evaluation for a single worker, n workers that train s(n) times
as fast take T / s(n) + V if one of them evaluates.  So whatever they do, they are at most
(T + V) / V times as fast (Amdahl 1967).
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.data.cases import Case, Point
from analysis.figures.marks import data_of
from analysis.figures.style import (
    IDEAL,
    INK,
)
from analysis.stats.points import mean_rate
from analysis.stats.statistics import estimate
from analysis.studies.shown import (
    Shown,
    intervals,
    marks_from,
    over_base,
    plot_panels,
    shown_study,
    texts_of,
)
from analysis.wording import NONE, number, ratio, ratio_text
from ps_allreduce.point.measurement import EvaluationMode
from ps_allreduce.point.strategies import Horovod
from ps_allreduce.point.workload import Scaling

TEXTS = texts_of("claix")

#: Patches of BigEarthNet, and the shares that are trained and tested in every epoch.
PATCHES, TRAINED, TESTED = 590_326, 0.6, 0.2

#: POP metrics of the original by its number of GPUs.
PUBLISHED_POP = {48: (0.27, 0.99, 0.26), 64: (0.34, 0.99, 0.33)}

#: Columns of `_rows` that tell a curve.
_CURVE = ["scaling", "evaluation"]


def _show(cases: Sequence[Case]) -> Shown:
    rows = pd.DataFrame([row for case in cases for row in _rows(case)])
    if rows.empty:
        return Shown(sentences=["No single worker was evaluated, so there is no epoch to tell of."])
    curves = rows[rows["strategy"] != Horovod.kind]
    tables = [
        TEXTS.table("epochs", _epochs(curves)),
        TEXTS.table("pop", _pop(curves)),
    ]
    fused = rows[rows["strategy"] == Horovod.kind]
    if not fused.empty:
        tables.append(TEXTS.table("fusion", _fusion(fused)))
    several = curves["workers"].nunique() > 1
    return Shown(
        sentences=[*_sentences(curves)],
        tables=tables,
        figures=[TEXTS.figure("figure", _drawn(curves), data_of(curves))] if several else [],
    )


def _rows(case: Case) -> Iterator[dict[str, object]]:
    """Every point that was evaluated, beside the single worker of its case."""
    base = next((p for p in case.points if p.setting.traits.max_workers == 1), None)
    for point in case.points:
        if len(_epoch_s(point)) and base is not None and len(_epoch_s(base)):
            yield _row(case, point, base)


def _row(case: Case, point: Point, base: Point) -> dict[str, object]:
    evaluation = point.experiment.evaluation
    assert evaluation is not None
    training, evaluating = _phases_s(base)
    return {
        "case": case.name,
        "scaling": str(point.experiment.workload.scaling),
        "strategy": point.setting.called,
        "label": point.setting.label,
        "evaluation": str(evaluation.mode),
        "workers": point.num_workers,
        "training_rate": mean_rate(point),
        "evaluation_rate": estimate(point.known("evaluation_examples_per_sec")).mean,
        "epoch_s": estimate(_epoch_s(point)).mean,
        **_speed_up(point, base),
        "share": float((_phases_s(point)[1] / _epoch_s(point)).mean()),
        "bound": float(((training + evaluating) / evaluating).mean()),
        "input": _mean(point, "input_wait_s") / _mean(point, "mean_step_s"),
        **{name: _mean(point, name) for name in ("load_balance", "serialisation", "transfer")},
    }


def _phases_s(point: Point) -> tuple[pd.Series, pd.Series]:
    """Seconds that an epoch trains and evaluates, of each launch."""
    evaluated = point.known("evaluation_examples_per_sec")
    rates = point.rates.reindex(evaluated.index)
    return PATCHES * TRAINED / rates, PATCHES * TESTED / evaluated


def _epoch_s(point: Point) -> pd.Series:
    training, evaluating = _phases_s(point)
    return (training + evaluating).dropna()


def _speed_up(point: Point, base: Point) -> dict[str, Any]:
    """Of an epoch over the base's; the base itself has no interval."""
    speed_up = over_base("speed_up", 1 / _epoch_s(point), 1 / _epoch_s(base))
    alone = {"speed_up": 1.0, "low": math.nan, "high": math.nan} if point is base else {}
    return speed_up | alone


def _mean(point: Point, column: str) -> float:
    return float(point.known(column).mean())


def _sentences(rows: pd.DataFrame) -> Iterator[str]:
    """What the most workers gain with either evaluation, and what bounds the sequential one."""
    weak = rows[rows["scaling"] == Scaling.WEAK]
    most = weak[weak["workers"] == weak["workers"].max()]
    if most.empty or most["workers"].iloc[0] == 1:
        return
    told = [
        f"{ratio_text(row['speed_up'], row['low'], row['high'])} with a "
        f"{row['evaluation']} evaluation"
        for row in most.to_dict("records")
    ]
    yield (
        f"With {most['workers'].iloc[0]} workers an epoch is so many times as fast as with one: "
        f"{', '.join(told)}. A sequential evaluation bounds it by {ratio(most['bound'].iloc[0])}."
    )


def _epochs(rows: pd.DataFrame) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "workers": rows["workers"].map(str) + ", " + rows["scaling"],
            "evaluation": [
                evaluation if count > 1 else "of one"
                for evaluation, count in zip(rows["evaluation"], rows["workers"], strict=True)
            ],
            "train/s": rows["training_rate"].map(number),
            "eval/s": rows["evaluation_rate"].map(number),
            "epoch s": rows["epoch_s"].map(number),
            "speed-up": intervals(rows, ["speed_up", "low", "high"], ratio),
            "share": rows["share"].map(ratio),
        }
    )


def _pop(rows: pd.DataFrame) -> pd.DataFrame:
    """Ours, then those of the original; where both evaluations were measured, of one of them."""
    own = rows.drop_duplicates(["scaling", "workers"])
    here = [_pop_row(_pop_name(row), row) for row in own.to_dict("records")]
    there = [
        {
            "": "published, GPUs",
            "workers": str(count),
            "parallel efficiency": ratio(parallel),
            "load balance": ratio(balance),
            "communication": ratio(communication),
            "input": NONE,
        }
        for count, (parallel, balance, communication) in PUBLISHED_POP.items()
    ]
    return pd.DataFrame([*here, *there])


def _pop_name(row: Mapping[Hashable, Any]) -> str:
    evaluation = f", evaluation {row['evaluation']}" * (row["workers"] > 1)
    return f"{row['scaling']}{evaluation}"


def _pop_row(name: str, row: Mapping[Hashable, Any]) -> dict[str, str]:
    balance, serial, transfer = (row[n] for n in ("load_balance", "serialisation", "transfer"))
    return {
        "": f"here, {name}",
        "workers": str(row["workers"]),
        "parallel efficiency": ratio(balance * serial * transfer),
        "load balance": ratio(balance),
        "communication": ratio(serial * transfer),
        "input": ratio(row["input"]),
    }


def _fusion(rows: pd.DataFrame) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "setting": rows["label"],
            "workers": rows["workers"].map(str),
            "train/s": rows["training_rate"].map(number),
        }
    )


def _drawn(rows: pd.DataFrame) -> Figure:
    counts = sorted(rows["workers"].unique())
    panel = {
        ", ".join(names): marks_from(own.assign(x=np.log2(own["workers"])), own["speed_up"])
        for names, own in _curves(rows)
    }
    highest = math.ceil(math.log2(max(*counts, rows["bound"].max())))

    def draw_beside(axes: Axes, _: str) -> None:
        axes.plot(np.log2(counts), counts, color=IDEAL, linewidth=0.8, label="ideal")
        _draw_bound(axes, rows)
        ends = 2.0 ** np.arange(0, highest + 1)
        axes.set_yscale("log", base=2)
        axes.set_yticks(ends, [f"{end:g}" for end in ends])
        axes.set_ylim(0.9 * min(1.0, *map(min, rows["launches"])), 1.1 * ends[-1])

    ticks = {math.log2(count): str(count) for count in counts}
    labels = "workers", "speed-up of an epoch"
    return plot_panels({"": panel}, ticks, labels, draw_beside, at_least=2.0**highest)


def _curves(rows: pd.DataFrame) -> Iterator[tuple[tuple[str, str], pd.DataFrame]]:
    """By scaling and evaluation; a single worker begins each."""
    alone = rows[rows["workers"] == 1]
    for names, own in rows[rows["workers"] > 1].groupby(_CURVE, sort=False):
        scaling, evaluation = str(names[0]), str(names[1])
        told = (f"{scaling} scaling", f"{evaluation} evaluation")
        yield told, pd.concat([alone[alone["scaling"] == scaling], own])


def _draw_bound(axes: Axes, rows: pd.DataFrame) -> None:
    sequential = rows[rows["evaluation"] == EvaluationMode.SEQUENTIAL]
    if len(sequential):
        bound = float(sequential["bound"].mean())
        axes.axhline(bound, color=INK, linestyle="--", linewidth=1.0)
        axes.annotate(
            f"bound of a sequential evaluation: {bound:.1f}",
            (0.02, bound),
            xycoords=("axes fraction", "data"),
            xytext=(0, 3),
            textcoords="offset points",
            fontsize=7,
        )


CLAIX = shown_study("claix", _show)
