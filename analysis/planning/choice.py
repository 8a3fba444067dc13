"""Which of the measured settings is taken home: the fastest, or one that is named.

Decides what "the fastest" is, as where two sides are compared (`stats.pairs.sides`): of the
synchronous settings that communicate, on the most hosts (those of servers counted), that with the
highest rate.
Of several sweeps of one model the newest counts.  Runs of the gate are no measurements.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from analysis.data.blocks import BEFOREHAND, analysed
from analysis.data.cases import Point, make_cases
from analysis.data.load import find_sweeps, read_sweep
from analysis.stats.pairs.sides import Side, SideKind
from analysis.stats.statistics import MIN_LAUNCHES, Estimate, estimate
from analysis.wording import number, with_interval
from ps_allreduce.errors import UserError
from ps_allreduce.point.strategies import Single
from ps_allreduce.record.records import RunRecord

BEST = "best"

#: So many settings are named where none is meant.
SHOWN = 5

TOGETHER = SideKind(
    name="synchronous settings",
    setting="synchronous setting",
    strategies=lambda traits: (
        traits.synchronous and traits.communicates() and not traits.as_shipped
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MeasuredSetting:
    """A setting at a number of workers, and what was measured of it.

    Attributes:
        sweep: the folder of its sweep.
        unit: what the rate counts.
        rate: examples per second, with its interval over launches.
        launches: how many count.
        record: of the last launch that counts.
        alone: the same of a single worker in the same sweep; None if not measured, or if workers
            share cores, of which it has as many as it uses.
    """

    sweep: Path
    unit: str
    rate: Estimate
    launches: int
    record: RunRecord
    alone: Estimate | None = None

    @property
    def launches_text(self) -> str:
        """`1 launch`, `2 launches`."""
        return f"{self.launches} launch{'es' * (self.launches != 1)}"

    @property
    def better_alone(self) -> str:
        """A sentence where these workers together are slower than one alone; else empty."""
        workers = self.record.experiment.num_workers
        if self.alone is None or self.alone.mean <= self.rate.mean or workers == 1:
            return ""
        alone, together = (with_interval(number, *each.ends) for each in (self.alone, self.rate))
        told = (
            f"A single worker made {alone} {self.unit}/s there, and these {workers} together "
            f"{together}: "
        )
        low, high = self.alone.low, self.rate.high
        if low is None or high is None or low <= high:
            return told + "whether more hosts pay for this model is not certain."
        return told + "for this model more hosts do not pay."

    @property
    def line(self) -> str:
        """As users choose it."""
        experiment = self.record.experiment
        rate = f"{self.rate.mean:.1f} {self.unit}/s"
        return f"{experiment.experiment_id}  {experiment.title}  {rate}"


def choose(folder: Path, setting: str, model: str | None) -> MeasuredSetting:
    """The setting that is meant, of all sweeps below a folder.

    Args:
        setting: `best`, or the beginning of an experiment's identity.
        model: as the user calls it; None where only one was measured.

    Raises:
        UserError: there is none, or there are several.
    """
    sweeps = [each for each in find_sweeps(folder) if each.name not in BEFOREHAND]
    sides = [side for sweep in sweeps for side in _sides(sweep, model)]
    if not sides:
        what = "launch" if model is None else f"launch of {model}"
        raise UserError(
            f"{folder} holds no valid {what}: run a sweep first, and name a model as in its sweep."
        )
    if setting == BEST:
        return _best(sides)
    every = [_measured(sweep, points, point) for sweep, points in sides for point in points]
    meant = {
        each.record.experiment_id: each
        for each in every
        if each.record.experiment_id.startswith(setting)
    }
    if len(meant) != 1:
        few = sorted(meant.values() or every, key=lambda each: -each.rate.mean)[:SHOWN]
        problem = "several settings begin" if meant else "no setting begins"
        lines = "".join(f"\n  {each.line}" for each in few)
        raise UserError(f"{problem} with {setting!r}; with valid launches there are:{lines}")
    return next(iter(meant.values()))


#: The folder of a sweep, and the points of one of its cases that have valid launches.
_Measured = tuple[Path, Sequence[Point]]


def _sides(sweep: Path, model: str | None) -> Iterator[_Measured]:
    results = analysed(read_sweep(sweep))
    for case in make_cases(results.block.table, results.files.records):
        points = [point for point in case.points if len(point.rates)]
        names = {point.experiment.workload.model.name for point in points}
        of_gate = any(point.experiment.workload.deterministic for point in points)
        if points and not of_gate and (model is None or model in names):
            yield sweep, points


def _best(sides: Sequence[_Measured]) -> MeasuredSetting:
    synchronous = [side for side in sides if _together(side[1])]
    models = {points[0].experiment.workload.model.name for _, points in synchronous}
    if not models:
        raise UserError(
            "no synchronous setting with several workers has a valid launch: name a setting, for "
            f"instance {sides[0][1][0].counting[-1].experiment_id}."
        )
    if len(models) > 1:
        raise UserError(f"several models were measured: state --model, {' or '.join(models)}.")
    sweep, points = max(
        synchronous, key=lambda side: max(p.attempts["started_at"].max() for p in side[1])
    )
    return _measured(sweep, points, _fastest(_together(points)))


def _together(points: Sequence[Point]) -> list[Point]:
    return [point for point in points if TOGETHER.strategies(point.setting.traits)]


def _fastest(points: Sequence[Point]) -> Point:
    """On the most hosts with enough launches, or with any where none has enough."""
    enough = [point for point in points if len(point.rates) >= MIN_LAUNCHES] or points
    most = max(point.room for point in enough)
    there = tuple(point for point in enough if point.room == most)
    return Side(kind=TOGETHER, points=there).best


def _measured(sweep: Path, points: Sequence[Point], point: Point) -> MeasuredSetting:
    """A point, among those of its case."""
    shares_cores = any(each.shares_cores for each in points)
    alone = [estimate(p.rates) for p in points if p.setting.traits is Single and not shares_cores]
    return MeasuredSetting(
        sweep=sweep,
        unit=str(point.asked["unit"]),
        rate=estimate(point.rates),
        launches=len(point.rates),
        record=point.counting[-1],
        alone=max(alone, key=lambda each: each.mean, default=None),
    )
