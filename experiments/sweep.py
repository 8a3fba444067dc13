"""A sweep: points, repetitions, and a randomised, interleaved order.

Pure: decides which runs there are and in which order, not how they are made.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ps_allreduce.errors import UserError
from ps_allreduce.experiment import Experiment


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedRun:
    """One repetition of one point."""

    experiment: Experiment
    repetition: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """Named points, each to be launched as often as its profile says.

    Attributes:
        seed: of the order of the runs.
    """

    name: str
    points: tuple[Experiment, ...]
    seed: int

    def __post_init__(self) -> None:
        if not self.points:
            raise UserError(f"sweep {self.name} has no point: every combination was excluded.")

    def runs(self) -> list[PlannedRun]:
        """Every point once per block of repetitions, each block in an order of its own.

        Interleaving lets a drift of the machine hit all points alike, and makes ratios of points
        pairs of the same block.
        """
        runs: list[PlannedRun] = []
        for repetition in range(max(point.profile.repetitions for point in self.points)):
            block = [p for p in self.points if repetition < p.profile.repetitions]
            random.Random(f"{self.seed}/{repetition}").shuffle(block)
            runs += [PlannedRun(experiment=point, repetition=repetition) for point in block]
        return runs


def expand(
    axes: Mapping[str, Sequence[object]], make: Callable[..., Experiment | None]
) -> tuple[Experiment, ...]:
    """All combinations of the axes' values; `make` returns None for excluded ones.

    Points that come out alike are kept once.
    """
    points = {}
    for values in itertools.product(*axes.values()):
        point = make(**dict(zip(axes, values, strict=True)))
        if point is not None:
            points[point.experiment_id] = point
    return tuple(points.values())
