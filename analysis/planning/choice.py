"""What follows from the settings that were measured: which stay in a sweep, which is taken home.

Decides what a sweep sees before it launches its main comparison once more, as the report tells it:
the same settings have left their side, and the interval is the one that is told.

Decides what "the fastest" is, as the report does: of the main comparison's settings, or of one side
alone of its synchronous ones, the one that leads as far as it is decided (`stats.findings`); and
plain TensorFlow where that is decided to be faster.  Where neither was measured, it is the
synchronous setting that leads on the most hosts.
Of several sweeps of one model the newest counts.  Runs of the gate are no measurements.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from analysis.data.blocks import analysed
from analysis.data.cases import Case, Point, cases_of
from analysis.data.load import SweepFiles, find_sweeps, read_sweep
from analysis.stats.comparisons import Comparison, compare_alone, comparisons
from analysis.stats.decision import Outcome
from analysis.stats.findings import contending_sides, highest, leader, plain_lead
from analysis.stats.rivals import contenders, rivals_of
from analysis.stats.statistics import MIN_LAUNCHES, Estimate, estimate
from analysis.wording import count_text, number, with_interval
from ps_allreduce.errors import UserError
from ps_allreduce.point.sides import SHIPPED_ALLREDUCE
from ps_allreduce.point.strategies import Single
from ps_allreduce.record.choices import BEFOREHAND
from ps_allreduce.record.records import RunRecord

BEST = "best"

#: So many settings are named where none is meant.
SHOWN = 5


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MeasuredSetting:
    """A setting at a number of workers, and what was measured of it.

    Attributes:
        sweep: the folder of its sweep.
        unit: what the rate counts.
        rate: examples per second, with its interval over launches.
        launches: how many count.
        record: of the last launch that counts.
        unread: that files of the sweep could not be read; empty if all could.
        alone: a single worker of the same sweep over this setting; None if not measured, or if
            workers share cores, of which it has as many as it uses.
    """

    sweep: Path
    unit: str
    rate: Estimate
    launches: int
    record: RunRecord
    unread: str = ""
    alone: Comparison | None = None

    @property
    def launches_text(self) -> str:
        """`1 launch`, `2 launches`."""
        return count_text(self.launches, "launch")

    @property
    def better_alone(self) -> str:
        """A sentence unless these workers are decided to be faster than one; else empty."""
        if self.alone is None or self.alone.outcome is Outcome.SLOWER:
            return ""
        single = estimate(self.alone.metric.values(self.alone.first.best))
        alone, together = (with_interval(number, *each.ends) for each in (single, self.rate))
        told = (
            f"A single worker made {alone} {self.unit}/s there, and these "
            f"{self.record.experiment.num_workers} together {together}: "
        )
        if self.alone.outcome is Outcome.FASTER:
            return told + "for this model so many do not pay."
        if self.alone.outcome is Outcome.EQUAL:
            return told + f"{Outcome.EQUAL}, so for this model so many do not pay."
        return told + "whether more hosts pay for this model is not certain."

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
    measured = [_measured(*each, point) for each in sides for point in each[1].points]
    every = {each.record.experiment_id: each for each in measured}
    meant = {name: each for name, each in every.items() if name.startswith(setting)}
    if len(meant) != 1:
        problem = "several settings begin" if meant else "no setting begins"
        among = meant or every
        few = sorted(among.values(), key=lambda each: -each.rate.mean)[:SHOWN]
        lines = "".join(f"\n  {each.line}" for each in few)
        raise UserError(
            f"{problem} with {setting!r}; of {len(among)} with valid launches the fastest are:"
            f"{lines}"
        )
    return next(iter(meant.values()))


#: A sweep, and one of its cases without the points that have no valid launch.
_Measured = tuple[SweepFiles, Case]


def _sides(sweep: Path, model: str | None) -> Iterator[_Measured]:
    files = read_sweep(sweep)
    results = analysed(files)
    for case in cases_of(results) if not results.searched else ():
        points = [point for point in case.points if len(point.rates)]
        names = {point.experiment.workload.model.name for point in points}
        of_gate = any(point.experiment.workload.deterministic for point in points)
        if points and not of_gate and (model is None or model in names):
            yield files, replace(case, points=tuple(points))


def _best(sides: Sequence[_Measured]) -> MeasuredSetting:
    synchronous = [side for side in sides if _together(side[1])]
    models = {case.points[0].experiment.workload.model.name for _, case in synchronous}
    if not models:
        raise UserError(
            "no synchronous setting with several workers has a valid launch: name a setting, for "
            f"instance {sides[0][1].points[0].counting[-1].experiment_id}."
        )
    if len(models) > 1:
        raise UserError(f"several models were measured: state --model, {' or '.join(models)}.")
    files, case = max(
        synchronous, key=lambda side: max(p.attempts["started_at"].max() for p in side[1].points)
    )
    return _measured(files, case, _fastest(case))


def _together(case: Case) -> list[Point]:
    able = [point for point in case.points if point.setting.traits.synchronous]
    able = [point for point in able if point.setting.traits.communicates()]
    return [point for point in able if not point.setting.traits.as_shipped]


def _fastest(case: Case) -> Point:
    """What leads as the report says it, or plain TensorFlow where that is faster.

    What cannot be exported is left out.
    """
    table, candidates = comparisons(case), _candidates(case)
    able = [point for point in candidates if not point.setting.traits.export_refusal]
    best = leader(table, able or candidates)
    return plain_lead(table, best, rivals_of(case).of(SHIPPED_ALLREDUCE))


def _candidates(case: Case) -> Sequence[Point]:
    """Those that the report compares; else on the most hosts with enough launches, or with any."""
    if sides := contending_sides(comparisons(case)):
        return [point for side in sides for point in side.points]
    for contending in contenders(case):
        if contending[0].setting.traits.synchronous:
            return contending
    points = _together(case)
    enough = [point for point in points if len(point.rates) >= MIN_LAUNCHES] or points
    most = max(point.room for point in enough)
    return [point for point in enough if point.room == most]


def _measured(files: SweepFiles, case: Case, point: Point) -> MeasuredSetting:
    singles = [p for p in case.points if p.setting.traits is Single and not case.shares_cores]
    several = singles and point.num_workers > 1
    return MeasuredSetting(
        sweep=files.folder,
        unit=case.unit,
        rate=estimate(point.rates),
        launches=len(point.rates),
        record=point.counting[-1],
        unread=files.unread,
        alone=compare_alone(case, highest(singles), [point]) if several else None,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Glance:
    """What is known of the main comparison.

    Attributes:
        beaten: `point_id` of the settings that cannot be the best of their side any more.
        half_width: how far the interval of the ratio reaches to either side, as a share of it; of
            several cases the widest.  None where some case has no main comparison with an interval.
    """

    beaten: frozenset[str]
    half_width: float | None


def look_at(sweep_dir: Path) -> Glance:
    """See what the records of a sweep tell so far.

    Raises:
        UserError: no record can be read.
    """
    mains = [comparisons(case).main for case in cases_of(analysed(read_sweep(sweep_dir)))]
    known = [main for main in mains if main is not None]
    widths = [main.decision.half_width for main in known]
    certain = [width for width in widths if width is not None]
    return Glance(
        beaten=frozenset(name for main in known for name in _beaten(main)),
        half_width=max(certain) if certain and len(certain) == len(mains) else None,
    )


def _beaten(main: Comparison) -> list[str]:
    return [
        point.experiment.point_id
        for side in main.sides
        for point in side.points
        if point not in side.may_be_best
    ]
