"""A sweep: points, how thoroughly they are measured, a randomised order, and how long it takes.

Pure: decides how long a run measures and when it has timed out, how often every point is launched,
and in which order; not how runs are made.  Repetitions and deadline are no part of an experiment: a
sweep of three launches can be continued to ten.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from ps_allreduce.errors import UserError, at_least, at_most
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.layout import num_hosts as hosts_needed
from ps_allreduce.point.measurement import Measurement, SteadyWarmup
from ps_allreduce.point.sides import both_sides, main_points

#: Repetitions of different jobs are so far apart that they never meet: a pair of runs with the same
#: repetition was made by the same job.
REPETITIONS_APART = 1000

#: Of so many blocks that only hold the main comparison one has the sentinel.  Which ones must not
#: depend on how many there will be: the clock decides that while they are made.
SENTINEL_EVERY = 3

#: So many times its deadline is a run given whose steps need it.
PATIENCE = 3

#: Beyond a run's own deadline: bringing fork servers up, and taking everything down.
LAUNCH_ALLOWANCE_S = 60.0

#: What a run takes beyond warm-up and measured steps: building and tracing; in a job of a batch
#: system a step and imports as well.
OVERHEAD_S = 5.0
JOB_OVERHEAD_S = 20.0

#: What a window that is only counted in steps is expected to take.
TYPICAL_WINDOW_S = 10.0

QUICK, STANDARD = "quick", "standard"

#: With imports and the report, `make compare` ends within five minutes where cores are many enough
#: for the fewest launches.
QUICK_S = 280.0

#: Where steps never get steady, a quick sweep does not wait for long; fewer steps than these show
#: no trend (`runner.loop`).
QUICK_WARMUP = SteadyWarmup(least_steps=7, most_s=3.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """How thoroughly a sweep is run.

    Attributes:
        measurement: of every point, unless a study or a pilot decides otherwise.
        repetitions: launches of every point; with a budget, of every point at least.
        main_repetitions: with a budget, launches of both sides of the main comparison at least.
        deadline_s: a run that takes longer has timed out, unless its steps need longer.
        budget_s: time of a call.  What the fewest launches leave of it goes to the main comparison.
            None launches all points equally often.
        pilot: runs beforehand choose the length of windows, and the number of those launches.
        precision: the sweep ends early where the interval of the main ratio reaches no further than
            this share to either side; None for never.
    """

    name: str
    measurement: Measurement = field(default_factory=Measurement)
    repetitions: int = 3
    main_repetitions: int = 0
    deadline_s: float = 120.0
    budget_s: float | None = None
    pilot: bool = False
    precision: float | None = None

    def __post_init__(self) -> None:
        at_least(1, repetitions=self.repetitions, deadline_s=self.deadline_s)
        at_most(REPETITIONS_APART, repetitions=self.repetitions)
        if self.budget_s is not None:
            at_least(1, budget_s=self.budget_s)

    def without_budget(self, repetitions: int) -> Profile:
        """So many launches of every point, in the windows of this profile."""
        return replace(self, repetitions=repetitions, budget_s=None, pilot=False, precision=None)

    @property
    def limit_s(self) -> float:
        """A run with longer steps has timed out then; none is worth more of a sweep's time."""
        return PATIENCE * self.deadline_s


PROFILES: Mapping[str, Profile] = {
    QUICK: Profile(
        name=QUICK,
        measurement=Measurement(warmup=QUICK_WARMUP, measured_steps=8, measured_s=1.0),
        repetitions=3,
        main_repetitions=5,
        deadline_s=60.0,
        budget_s=QUICK_S,
    ),
    STANDARD: Profile(
        name=STANDARD,
        measurement=Measurement(measured_s=20.0, event_steps=3),
        repetitions=5,
        deadline_s=900.0,
        budget_s=3600.0,
        pilot=True,
        precision=0.02,
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedRun:
    """One repetition of one point."""

    experiment: Experiment
    repetition: int

    @property
    def turn(self) -> int:
        """Number of its block within its job, from 0."""
        return self.repetition % REPETITIONS_APART


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """Named points, each to be launched as often as the profile says.

    Attributes:
        profile: repetitions and deadline of every point.
        seed: of the order of the runs.
        main_launches: of the points of the main comparison, which may be launched more often.
        left: of those that left the main comparison, by identity, after how many turns they did.
        job_sizes: numbers of hosts, ascending, where the sweep has a job for each of them: a point
            is run in the smallest job that holds it, and points without any other (a single worker)
            in every job, which they join.
    """

    name: str
    points: tuple[Experiment, ...]
    profile: Profile
    seed: int
    main_launches: int | None = None
    left: Mapping[str, int] = field(default_factory=dict)
    job_sizes: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if not self.points:
            raise UserError(f"sweep {self.name} has no point: every combination was excluded.")

    @property
    def fewest_turns(self) -> int:
        """Turns that are made however long they take, those of the main comparison among them."""
        own = self.profile
        has_more = own.budget_s is not None and both_sides(self.points)
        return max(own.repetitions, own.main_repetitions if has_more else 0)

    def contenders(self, turn: int) -> list[Experiment]:
        """The points that are launched more often than the others, as far as they are in a turn."""
        main, left = main_points(self.points), self.left
        return [p for p in main if left.get(p.experiment_id, math.inf) > turn]

    @property
    def sentinel(self) -> Experiment | None:
        """The single worker, whose rate tells a drift; None where there is none."""
        return next((point for point in self.points if _joins(point)), None)

    def runs(self) -> list[PlannedRun]:
        """All runs, job after job."""
        if not self.job_sizes:
            return self._blocks(self.points, 0)
        return [run for size in self.job_sizes for run in self.runs_of_job(size)]

    def runs_of_job(self, size: int) -> list[PlannedRun]:
        """The runs of the job with so many hosts; none if the base points would be alone in it.

        Raises:
            UserError: the sweep has no such job.
        """
        if size not in self.job_sizes:
            sizes = ", ".join(map(str, self.job_sizes))
            raise UserError(
                f"--jobs-by-size makes jobs of {sizes} hosts of this sweep, and this one has "
                f"{size}: submit it from a login node, or leave the option out."
            )
        number = self.job_sizes.index(size)
        points = [p for p in self.points if not _joins(p) and self._size_of(p) == size]
        joining = [point for point in self.points if _joins(point)]
        if not points and (number or len(joining) < len(self.points)):
            return []
        return self._blocks([*joining, *points], number * REPETITIONS_APART)

    def _size_of(self, point: Experiment) -> int:
        return next(size for size in self.job_sizes if hosts_needed(point) <= size)

    def _blocks(self, points: Sequence[Experiment], first: int) -> list[PlannedRun]:
        """Every point once per block of repetitions, then the main comparison alone.

        Each block has an order of its own.  Interleaving lets a drift of the machine hit all points
        alike, and makes ratios of points pairs of the same block.  The main comparison's points
        follow one another, so that a slow minute hits both sides.  The sentinel begins the first
        block and ends the others.
        """
        every = self.profile.repetitions
        has_more = any(point in points for point in self.contenders(every))
        last = max(every, self.main_launches or 0) if has_more else every
        blocks = {repetition: list(points) for repetition in range(every)}
        blocks |= {repetition: self._more(points, repetition) for repetition in range(every, last)}
        return [
            run
            for repetition, block in blocks.items()
            for run in self._block(block, first + repetition)
        ]

    def _more(self, points: Sequence[Experiment], turn: int) -> list[Experiment]:
        """A block of the main comparison alone."""
        contenders = [point for point in self.contenders(turn) if point in points]
        sentinel, before = self.sentinel, turn - self.profile.repetitions
        if sentinel is None or sentinel in contenders or before % SENTINEL_EVERY != 1:
            return contenders
        return [*contenders, sentinel]

    def _block(self, points: Sequence[Experiment], repetition: int) -> list[PlannedRun]:
        sentinel, generator = self.sentinel, random.Random(f"{self.seed}/{repetition}")
        together = [point for point in both_sides(self.points) if point in points]
        groups = [[point] for point in points if point not in (sentinel, *together)]
        if together:
            generator.shuffle(together)
            groups.append(together)
        generator.shuffle(groups)
        block = [point for group in groups for point in group]
        if sentinel is not None and sentinel in points:
            block.insert(len(block) if repetition % REPETITIONS_APART else 0, sentinel)
        return [PlannedRun(experiment=point, repetition=repetition) for point in block]


def _joins(point: Experiment) -> bool:
    """Its speed is the base of all others."""
    return point.strategy.max_workers == 1


def job_sizes(num_hosts: int) -> tuple[int, ...]:
    """Numbers of hosts of a sweep's jobs: powers of two, and all of them.

    No point leaves more than about half of its job's hosts idle, and there are few jobs to wait
    for.
    """
    return tuple(sorted({*powers_of_two(num_hosts), num_hosts}))


def powers_of_two(most: int) -> tuple[int, ...]:
    """1, 2, 4 and so on, none above a number; 1 is always among them."""
    return tuple(2**power for power in range(max(1, most).bit_length()))


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedDuration:
    """How long runs take together.

    Attributes:
        likely_s: about so long.
        most_s: no longer than this.
    """

    num_runs: int
    likely_s: float
    most_s: float

    def __str__(self) -> str:
        return f"about {self.likely_s / 60:.0f} min and at most {self.most_s / 60:.0f} min"


def longest_run_s(profile: Profile) -> float:
    """From launch until everything is taken down, at most, where steps are not too long."""
    return profile.deadline_s + LAUNCH_ALLOWANCE_S


def expected_duration(
    sweep: Sweep, runs: Sequence[PlannedRun], overhead_s: float
) -> ExpectedDuration:
    """Add up what runs of a sweep take, with so many seconds for each beyond measuring.

    Turns of the main comparison alone take what the others leave of the time.
    """
    every = sum(run.turn < sweep.fewest_turns for run in runs)
    launches_s = [_likely_s(run.experiment) + overhead_s for run in runs]
    budget_s = sweep.profile.budget_s or 0.0 if runs else 0.0
    return ExpectedDuration(
        num_runs=len(runs),
        likely_s=min(sum(launches_s), max(sum(launches_s[:every]), budget_s)),
        most_s=max(budget_s, every * (sweep.profile.limit_s + LAUNCH_ALLOWANCE_S)),
    )


def _likely_s(experiment: Experiment) -> float:
    """Warm-up and window."""
    measurement = experiment.measurement
    if not isinstance(measurement, Measurement):
        return TYPICAL_WINDOW_S
    return measurement.warmup.likely_s + (measurement.measured_s or TYPICAL_WINDOW_S)
