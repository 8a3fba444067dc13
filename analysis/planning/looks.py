"""What a sweep asks of its main comparison before it launches it once more.

Both answers are those of the report: the same settings have left their side, and the interval is
the one that is told.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from analysis.data.blocks import analysed
from analysis.data.cases import Case, make_cases
from analysis.data.load import read_sweep
from analysis.data.metric import RATE
from analysis.stats.comparisons import Comparison, comparisons, may_be_best


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
    mains = [comparisons(case).main for case in _cases(sweep_dir)]
    known = [main for main in mains if main is not None]
    widths = [main.decision.half_width for main in known]
    certain = [width for width in widths if width is not None]
    return Glance(
        beaten=frozenset(name for main in known for name in _beaten(main)),
        half_width=max(certain) if certain and len(certain) == len(mains) else None,
    )


def _cases(sweep_dir: Path) -> tuple[Case, ...]:
    results = analysed(read_sweep(sweep_dir))
    return make_cases(
        results.block.table, results.files.records, results.files.definition.may_stop_early
    )


def _beaten(main: Comparison) -> list[str]:
    return [
        point.experiment.point_id
        for side in main.sides
        for point in side.points
        if point not in may_be_best(side.points, RATE)
    ]
