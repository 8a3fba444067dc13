"""How much launches and steps differ in sweeps that were really made.

Decides how the variances are taken apart: what launches of one turn share, what is of one launch
alone, and what steps of a launch do.  Sweeps of the bench itself and first looks at links are left
out: their runs are shorter than those of a study.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from analysis.data.blocks import analysed
from analysis.data.cases import Case, make_cases
from analysis.data.load import find_sweeps, read_sweep
from analysis.stats.statistics import MIN_LAUNCHES
from analysis.stats.steps.step_spread import step_spread
from ps_allreduce.errors import UserError
from ps_allreduce.record.records import Status

#: Folders below the results whose runs measure the suite or its links.
OWN_SWEEPS = ("bench", "emulation-check", "first-look", "pilot", "self-comparisons")

#: Runs of a sweep whose steps are looked at; they are all alike in what is asked of them.
_RUNS = 12

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Spreads:
    """Standard deviations of logarithms, which are about shares of the rate.

    Attributes:
        turn: of what all launches of a turn share.
        launch: of what is of one launch alone.
        step: of the steps of a launch, with their autocorrelation at lag 1.
        freedom: degrees of freedom that `launch` rests on.
        sweeps: how many were looked at.
    """

    turn: float
    launch: float
    step: float
    autocorrelation: float
    freedom: int
    sweeps: int


def measured_spreads(results: Path) -> Spreads | None:
    """Those of all sweeps below a folder; None where no sweep has three launches of two points."""
    cases: list[Case] = []
    steps: list[tuple[float, float]] = []
    sweeps = 0
    for path in find_sweeps(results):
        if any(part in OWN_SWEEPS for part in path.relative_to(results).parts):
            continue
        try:
            files = analysed(read_sweep(path))
        except UserError:
            continue
        cases += make_cases(files.block.table, files.files.records)
        table = files.block.table
        good = table.index[(table["status"] == Status.OK) & table["raw_timings"]]
        found = [step_spread(str(run)) for run in good[:_RUNS]]
        steps += [(each.spread, each.autocorrelation) for each in found if each is not None]
        sweeps += 1
    parts = [part for case in cases if (part := _parts(case)) is not None]
    return _pooled(parts, steps, sweeps) if parts else None


def _pooled(
    parts: list[tuple[float, float, int]], steps: list[tuple[float, float]], sweeps: int
) -> Spreads:
    weights = [freedom for *_, freedom in parts]
    turn, launch = (
        math.sqrt(np.average([part[place] for part in parts], weights=weights))
        for place in range(2)
    )
    step, lag = np.median(steps, axis=0) if steps else (0.0, 0.0)
    return Spreads(
        turn=turn,
        launch=launch,
        step=float(step),
        autocorrelation=float(lag),
        freedom=sum(weights),
        sweeps=sweeps,
    )


def _parts(case: Case) -> tuple[float, float, int] | None:
    """Variances of turns and of launches, and the degrees of freedom of the latter.

    An analysis of variance in two ways, of the turns that all points with enough launches have.
    """
    rates = [point.rates for point in case.points if len(point.rates) >= MIN_LAUNCHES]
    turns = sorted(set.intersection(*(set(each.index) for each in rates))) if rates else []
    if len(rates) < 2 or len(turns) < MIN_LAUNCHES:
        return None
    logs = np.log(np.array([each.loc[turns].to_numpy() for each in rates]))
    logs -= logs.mean(axis=1, keepdims=True)
    of_turns = logs.mean(axis=0)
    freedom = (len(rates) - 1) * (len(turns) - 1)
    launch = float(((logs - of_turns) ** 2).sum()) / freedom
    turn = float((of_turns**2).sum()) / (len(turns) - 1) - launch / len(rates)
    return max(turn, 0.0), launch, freedom
