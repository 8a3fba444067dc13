"""How much launches differ in sweeps that were really made.

Decides how the variances are taken apart: what launches of one turn share, and what is of one
launch alone.  Sweeps of the bench itself and first looks at links are left out: their runs are
shorter than those of a study.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from analysis.data.blocks import analysed
from analysis.data.cases import Case, make_cases
from analysis.data.load import find_sweeps, read_sweep
from analysis.stats.statistics import MIN_LAUNCHES
from ps_allreduce.errors import UserError

#: Folders below the results whose runs measure the suite or its links.
OWN_SWEEPS = ("bench", "emulation-check", "first-look", "pilot", "self-comparisons")


@dataclass(frozen=True, slots=True, kw_only=True)
class Spreads:
    """Standard deviations of logarithms, which are about shares of the rate.

    Attributes:
        turn: of what all launches of a turn share.
        launch: of what is of one launch alone.
    """

    turn: float
    launch: float


def measured_spreads(results: Path) -> Spreads | None:
    """Those of all sweeps below a folder; None where no sweep has three launches of two points."""
    parts: list[tuple[float, float, int]] = []
    for path in find_sweeps(results):
        if any(part in OWN_SWEEPS for part in path.relative_to(results).parts):
            continue
        try:
            files = analysed(read_sweep(path))
        except UserError:
            continue
        cases = make_cases(files.block.table, files.files.records)
        parts += [part for case in cases if (part := _parts(case)) is not None]
    if not parts:
        return None
    turns, launches, freedoms = zip(*parts, strict=True)
    turn, launch = (np.average(each, weights=freedoms) for each in (turns, launches))
    return Spreads(turn=math.sqrt(turn), launch=math.sqrt(launch))


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
