"""A sweep: points, repetitions, and a randomised, interleaved order.

Pure: decides which runs there are and in which order, not how they are made.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from experiments.sweep.profiles import Profile
from ps_allreduce.errors import UserError
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.layout import num_hosts as hosts_needed

#: Repetitions of different jobs are so far apart that they never meet: a pair of runs with the same
#: repetition was made by the same job.
REPETITIONS_APART = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedRun:
    """One repetition of one point."""

    experiment: Experiment
    repetition: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """Named points, each to be launched as often as the profile says.

    Attributes:
        profile: repetitions and deadline of every point.
        seed: of the order of the runs.
        job_sizes: numbers of hosts, ascending, where the sweep has a job for each of them: a point
            is run in the smallest job that holds it, and points without any other (a single worker)
            in every job, which they join.
    """

    name: str
    points: tuple[Experiment, ...]
    profile: Profile
    seed: int
    job_sizes: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if not self.points:
            raise UserError(f"sweep {self.name} has no point: every combination was excluded.")

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
        """Every point once per block of repetitions, each block in an order of its own.

        Interleaving lets a drift of the machine hit all points alike, and makes ratios of points
        pairs of the same block.
        """
        runs: list[PlannedRun] = []
        for repetition in range(first, first + self.profile.repetitions):
            block = list(points)
            random.Random(f"{self.seed}/{repetition}").shuffle(block)
            runs += [PlannedRun(experiment=point, repetition=repetition) for point in block]
        return runs


def _joins(point: Experiment) -> bool:
    """Its speed is the base of all others."""
    return point.strategy.max_workers == 1


def job_sizes(num_hosts: int) -> tuple[int, ...]:
    """Numbers of hosts of a sweep's jobs: powers of two, and all of them.

    No point leaves more than about half of its job's hosts idle, and there are few jobs to wait
    for.
    """
    sizes = [1]
    while sizes[-1] < num_hosts:
        sizes.append(min(2 * sizes[-1], num_hosts))
    return tuple(sizes)
