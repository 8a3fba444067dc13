"""What trainings that learn have shown: seconds and examples to a target, for the sweep `learning`.

Decides what strategies are held against (synchronous servers that send whole numbers after every
batch), and how seconds to a target are told where some trainings never reach it: by the median, for
which these took longest.  An interval of it from a few seeds is their range, so that is told.  What
may be said of two strategies is decided in `analysis.stats`, where launches that miss the target
leave no verdict.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.data.cases import Case, Point
from analysis.data.metric import EXAMPLES_TO_TARGET, RATE, TIME_TO_TARGET, Metric
from analysis.figures.curves import coloured, curves_of
from analysis.figures.marks import FAILED, side_name
from analysis.figures.save import DrawnFigure
from analysis.figures.style import LINES, finish_grid, logarithmic, new_figure, style
from analysis.stats.comparisons import decided
from analysis.stats.decision import UNSURE, Decision, Outcome
from analysis.stats.statistics import MIN_LAUNCHES, estimate
from analysis.studies.shown import (
    Shown,
    marks_from,
    plot_panels,
    shown_study,
    texts_of,
)
from analysis.wording import (
    NONE,
    capital,
    factor_text,
    number,
    outcome_text,
    with_interval,
    workers_text,
)
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.network import EmulatedNetwork, render_rate
from ps_allreduce.point.strategies import SynchronousServers
from ps_allreduce.point.strategies.base import value_of
from ps_allreduce.point.strategies.stated import DECLARATIONS
from ps_allreduce.point.wire import WireType
from ps_allreduce.record.evaluation_timings import LearningCurve, between, place_of

TEXTS = texts_of("learning")

#: Settings whose numbers follow that of workers, and how a label calls them without the number.
_FOLLOWING = {"num_ps": "", "synchronous_steps": "first synchronous"}

#: Of a cross, in a legend.
MISSED = "target not reached by all"

#: Losses of a curve, at which seconds of all seeds are known.
_GRID = 60


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Trained:
    """A strategy that has learned a task.

    Attributes:
        is_scaled: trainings have several numbers of workers.
    """

    case: Case
    point: Point
    is_scaled: bool

    @property
    def label(self) -> str:
        """The same on all links, where not all strategies were trained."""
        return self._called(self.point.experiment.strategy.title_parts())

    @property
    def variant(self) -> str:
        """The label, without numbers that follow that of workers where there are several."""
        if not self.is_scaled:
            return self.label
        strategy = self.point.experiment.strategy
        alike = {
            DECLARATIONS[name].phrase(name, value_of(name, strategy)): text
            for name, text in _FOLLOWING.items()
        }
        return self._called([alike.get(part, part) for part in strategy.title_parts()])

    def _called(self, parts: Sequence[str]) -> str:
        accumulation = self.point.experiment.workload.accumulation
        batches = [f"{accumulation} batches a step"] if accumulation > 1 else []
        return ", ".join([self.point.setting.called, *filter(None, parts), *batches])

    @property
    def curves(self) -> list[LearningCurve]:
        return [record.learned for record in self.point.counting if record.learned is not None]

    def until_target(self) -> float:
        """The median of the seconds to the target; infinite where half of the seeds miss it."""
        return float(self.point.launches["target_s"].astype(float).fillna(math.inf).median())


@dataclass(frozen=True, kw_only=True, eq=False)
class _Task:
    """Strategies that have learned one task on the same links.

    Attributes:
        trained: the one first that the others are held against.
    """

    name: str
    links: str
    workers: int
    trained: Sequence[_Trained]

    @property
    def panel(self) -> str:
        """What it shares with the same task of other numbers of workers."""
        return f"{self.name}, {self.links}" if self.links else self.name

    @property
    def title(self) -> str:
        return f"{self.panel}, {workers_text(self.workers)}"

    @property
    def target_loss(self) -> float | None:
        learning = self.trained[0].point.experiment.learning
        return learning.target_loss if learning is not None else None

    @cached_property
    def curves(self) -> pd.DataFrame:
        """Of each strategy (`_curve_data`)."""
        return _curve_data(self)

    @cached_property
    def decisions(self) -> Mapping[str, Mapping[Point, Decision]]:
        """Every other strategy against the first, each metric a family, by its column."""
        base = self.trained[0]
        pairs = [(each.point, base.point) for each in self.trained[1:]]
        return {
            metric.column: {pair[0]: each for pair, each in decided(base.case, metric, pairs)}
            for metric in (RATE, EXAMPLES_TO_TARGET, TIME_TO_TARGET)
        }


def _show(cases: Sequence[Case]) -> Shown:
    tasks = [*_tasks(cases)]
    if not tasks:
        return Shown(sentences=["No training has learned yet."])
    return Shown(
        sentences=[sentence for task in tasks for sentence in _sentences(task)],
        tables=[TEXTS.table("table", _table(t), title=t.title) for t in tasks],
        figures=[
            _learning_curves(tasks),
            *_against_workers(tasks),
            *_staleness(tasks),
        ],
    )


def _learning_curves(tasks: Sequence[_Task]) -> DrawnFigure:
    data = pd.concat([task.curves for task in tasks])
    missed = " A band goes on to the right where one never did." * bool(
        np.isinf(data["high"]).any()
    )
    caption = TEXTS.said["curves"]["caption"] + missed
    return TEXTS.figure("curves", _drawn(tasks), data, caption)


def _tasks(cases: Sequence[Case]) -> Iterator[_Task]:
    learned = [
        (case, point)
        for case in cases
        for point in case.points
        if point.experiment.learning is not None and len(point.launches)
    ]
    is_scaled = len({point.num_workers for _, point in learned}) > 1
    found: dict[tuple[str, str, int], list[_Trained]] = {}
    for case, point in learned:
        own = _Trained(case=case, point=point, is_scaled=is_scaled)
        found.setdefault(_shared(point.experiment), []).append(own)
    for (name, links, workers), trained in found.items():
        ordered = sorted(trained, key=lambda each: not _is_base(each.point.experiment))
        yield _Task(name=name, links=links, workers=workers, trained=ordered)


def _shared(experiment: Experiment) -> tuple[str, str, int]:
    name = experiment.workload.model.name.rpartition("/")[2].partition(".")[0]
    return name, _links_text(experiment.network), experiment.num_workers


def _links_text(network: EmulatedNetwork | None) -> str:
    """The same for every number of workers, the last of which may have a slow link."""
    if network is None:
        return ""
    equal = replace(network, slow_host=None, slow_bits_per_s=None)
    slow = network.slow_bits_per_s
    return f"links of {equal}" + ("" if slow is None else f", one of {render_rate(slow)}")


def _is_base(experiment: Experiment) -> bool:
    strategy = experiment.strategy
    if not isinstance(strategy, SynchronousServers) or experiment.workload.accumulation > 1:
        return False
    return strategy.wire.gradients is WireType.FLOAT32


def _sentences(task: _Task) -> Iterator[str]:
    """Of each strategy: its rate, the examples it needs, and what follows for the target."""
    base = task.trained[0].label
    for each in task.trained[1:]:
        rate, examples, target = (by_point[each.point] for by_point in task.decisions.values())
        where = f"{task.title}{_of_common_seeds(each.point, task.trained[0].point)}"
        makes = f"{where}: {each.label} makes {_times(rate)} the examples per second of {base}"
        if target.outcome in UNSURE:
            why = target.doubt or target.outcome
            yield capital(f"{makes}. Which one is faster to the target is not known: {why}.")
            continue
        yield capital(
            f"{makes}, needs {factor_text(examples.inverse())} the examples, and is "
            f"{_verdict(target)} to the target."
        )


def _of_common_seeds(first: Point, second: Point) -> str:
    """Ratios are paired by seed; empty where the table's means are of the same seeds."""
    seeds = [{*RATE.values(point).index} for point in (first, second)]
    is_paired = len(seeds[0] & seeds[1]) >= MIN_LAUNCHES
    return ", of the seeds that both have" * (is_paired and seeds[0] != seeds[1])


def _times(decision: Decision) -> str:
    """A ratio with its interval, and why it is none to rely on where there is no verdict."""
    if decision.ratio is None:
        return "an unknown multiple of"
    unsure = decision.outcome in UNSURE
    return factor_text(decision) + f" ({decision.outcome})" * unsure


def _verdict(decision: Decision) -> str:
    if decision.outcome is Outcome.SLOWER:
        return f"{factor_text(decision.inverse())} slower"
    if decision.outcome is Outcome.FASTER:
        return f"{factor_text(decision)} faster"
    return f"{factor_text(decision)} as fast ({outcome_text(decision)})"


def _table(task: _Task) -> pd.DataFrame:
    return pd.DataFrame([{"strategy": each.label, **_row(each)} for each in task.trained])


def _row(each: _Trained) -> dict[str, str]:
    launches, point = each.point.launches, each.point
    seconds = TIME_TO_TARGET.values(point)
    rates = ", ".join(f"{rate:g}" for rate in sorted(launches["learning_rate"].unique()))
    stale = launches["staleness_mean"].astype(float).mean()
    late = launches["staleness_p95"].astype(float).mean()
    return {
        "lr": rates,
        "batch": str(point.experiment.global_batch),
        "reached": f"{len(seconds)}/{len(launches)}",
        "s to target": number(each.until_target()),
        "range": f"{number(seconds.min())}, {number(seconds.max())}",
        "examples": _mean(EXAMPLES_TO_TARGET, point),
        "examples/s": _mean(RATE, point),
        "staleness, updates": NONE if math.isnan(stale) else f"{stale:.2g} ({late:.0f})",
    }


def _mean(metric: Metric, point: Point) -> str:
    values = metric.values(point)
    return NONE if values.empty else with_interval(number, *estimate(values).ends)


def _curve_data(task: _Task) -> pd.DataFrame:
    """When each loss was reached first: median and range of all seeds; infinite where it never was.

    From the first loss that all trainings share down to the target, or to the lowest loss.
    """
    curves = [curve for each in task.trained for curve in each.curves]
    last = task.target_loss or min(min(curve.loss) for curve in curves)
    levels = np.geomspace(min(curve.loss[0] for curve in curves), last, _GRID)
    parts = []
    for each in task.trained:
        seconds = [[_seconds_to(level, curve) for level in levels] for curve in each.curves]
        parts.append(
            pd.DataFrame(
                {
                    "task": task.title,
                    "strategy": each.variant,
                    "loss": levels,
                    "seconds": np.median(seconds, axis=0),
                    "low": np.min(seconds, axis=0),
                    "high": np.max(seconds, axis=0),
                }
            )
        )
    return pd.concat(parts)


def _seconds_to(loss: float, curve: LearningCurve) -> float:
    """Until a training reached a loss first; infinite if it never did."""
    at = place_of(loss, curve.loss, [each <= loss for each in curve.loss])
    seconds = between(curve.seconds, at)
    return math.inf if seconds is None else seconds


def _drawn(tasks: Sequence[_Task]) -> Figure:
    looks = _looks(tasks)
    with style():
        figure, grid = new_figure(len(tasks), 1, 1.2 + 0.15 * len(looks) + 2.2 * len(tasks))
        for axes, task in zip(grid, tasks, strict=True):
            _draw_curves(axes, task, looks)
        finish_grid(figure, grid, len(tasks), ("seconds of training", "loss"))
    return figure


def _looks(tasks: Sequence[_Task]) -> Mapping[str, tuple[str, str]]:
    """Colour and line of each strategy, the same in all figures."""
    trained = [each for task in tasks for each in task.trained]
    marks = coloured(pd.DataFrame(map(_named, trained))).drop_duplicates("label")
    return {
        str(label): (str(colour), line)
        for label, colour, line in zip(
            marks["label"], marks["colour"], itertools.cycle(LINES), strict=False
        )
    }


def _named(each: _Trained) -> dict[str, str]:
    """What the colour of a strategy follows from."""
    return {"label": each.variant, "side": side_name(each.point.setting.traits)}


def _draw_curves(axes: Axes, task: _Task, looks: Mapping[str, tuple[str, str]]) -> None:
    data = task.curves
    times = data[["seconds", "low", "high"]].to_numpy()
    end = 1.05 * times[np.isfinite(times)].max()
    for label, own in data.groupby("strategy", sort=False):
        colour, line = looks[str(label)]
        low, high = own["low"].clip(upper=end), own["high"].clip(upper=end)
        axes.fill_betweenx(own["loss"], low, high, color=colour, alpha=0.15, lw=0)
        axes.plot(own["seconds"], own["loss"], line, color=colour, label=str(label), lw=1.2)
    if task.target_loss is not None:
        axes.axhline(task.target_loss, color="black", ls=":", lw=0.8, label="target")
    axes.set_xlim(0.0, end)
    logarithmic(axes.yaxis)
    axes.set_title(task.title, loc="left")


def _against_workers(tasks: Sequence[_Task]) -> Iterator[DrawnFigure]:
    """Where there are several numbers of workers."""
    ticks = {float(number): str(number) for number in sorted({task.workers for task in tasks})}
    if len(ticks) < 2:
        return
    rows = pd.DataFrame([_mark(task, each) for task in tasks for each in task.trained])
    marks = coloured(marks_from(rows, rows["median"]))
    marks = marks.assign(**{name: rows[name] for name in ("ok", "planned", "failed")})
    labels = [*dict.fromkeys(marks["label"])]
    panels = {str(panel): curves_of(own, labels) for panel, own in marks.groupby("panel")}
    labels_of_axes = "workers", "seconds to the target"
    figure = plot_panels(panels, ticks, labels_of_axes, _name_missed, columns=1)
    missed = " Numbers such as 2/3: trainings that reached it, of all." * bool(rows["failed"].any())
    caption = TEXTS.said["against_workers"]["caption"] + missed
    data = rows.drop(columns=["side", "launches"])
    yield TEXTS.figure("against_workers", figure, data, caption)


def _name_missed(axes: Axes, _: str) -> None:
    """These attempts ended well."""
    for line in axes.get_lines():
        if line.get_label() == FAILED:
            line.set_label(MISSED)


def _mark(task: _Task, each: _Trained) -> dict[str, object]:
    median = each.until_target()
    seconds, launches = TIME_TO_TARGET.values(each.point), len(each.point.launches)
    return {
        "panel": task.panel,
        **_named(each),
        "x": float(task.workers),
        "median": median if math.isfinite(median) else math.nan,
        "low": seconds.min(),
        "high": seconds.max(),
        "launches": tuple(seconds),
        "ok": len(seconds),
        "planned": launches,
        "failed": launches - len(seconds),
    }


def _staleness(tasks: Sequence[_Task]) -> Iterator[DrawnFigure]:
    data = pd.DataFrame([row for task in tasks for row in _stale_rows(task)])
    if data.empty:
        return
    shown, looks = [task for task in tasks if task.title in set(data["task"])], _looks(tasks)
    with style():
        figure, grid = new_figure(len(shown), 1, 1.0 + 1.8 * len(shown))
        for axes, task in zip(grid, shown, strict=True):
            own = data[data["task"] == task.title]
            for label, bars in own.groupby("strategy", sort=False):
                colour, line = looks[str(label)]
                axes.step(
                    bars["staleness"],
                    bars["share"],
                    line,
                    where="mid",
                    label=str(label),
                    color=colour,
                )
            axes.set_title(task.title, loc="left")
        finish_grid(figure, grid, len(shown), ("staleness, updates", "share"))
    yield TEXTS.figure("staleness", figure, data)


def _stale_rows(task: _Task) -> Iterator[dict[str, object]]:
    for each in task.trained:
        counts = [np.asarray(curve.staleness) for curve in each.curves if curve.staleness]
        if counts:
            total = np.zeros(max(map(len, counts)))
            for own in counts:
                total[: len(own)] += own
            for staleness, share in enumerate(total / total.sum()):
                yield {
                    "task": task.title,
                    "strategy": each.variant,
                    "staleness": staleness,
                    "share": float(share),
                }


LEARNING = shown_study("learning", _show)
