"""How well the main ratio of a sweep is known that is still being made."""

from __future__ import annotations

from pathlib import Path

from analysis.data.blocks import analysed
from analysis.data.cases import Case, make_cases
from analysis.data.load import read_sweep
from analysis.stats.comparisons import comparisons


def half_width(sweep_dir: Path) -> float | None:
    """How far the interval of the main ratio reaches to either side, as a share of it.

    As the report tells it of a sweep that may end early.  Of several cases the widest counts.

    Returns:
        None where some case has no main comparison with an interval.

    Raises:
        UserError: no record can be read.
    """
    results = analysed(read_sweep(sweep_dir))
    cases = make_cases(results.block.table, results.files.records, results.files.may_stop_early)
    widths = [_half_width(case) for case in cases]
    known = [width for width in widths if width is not None]
    return max(known) if known and len(known) == len(widths) else None


def _half_width(case: Case) -> float | None:
    main = comparisons(case).main
    return None if main is None else main.decision.half_width
