"""How narrow the interval of the main ratio is, with a pilot's profile and with that before it.

Decides how pairs of sweeps are pooled: the widths of both intervals on the logarithm, as a ratio,
and its mean over the pairs with a t-interval.  Which sweeps these are is decided in
`experiments.suite.widths`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

from analysis.data.load import read_sweep
from analysis.planning.precision import half_width
from analysis.stats.statistics import estimate
from analysis.suite.targets import target_text, up_to

#: The folder of the sweeps, below that of the bench, and the two kinds of a pair.
WIDTHS = "widths"
BEFORE, NOW = "before", "now"

#: So many pairs of sweeps, made in turn.
PAIRS = 5

_WHY = "the width of three launches varies by a factor of two itself"

#: The new interval is to be so wide at most, as a share of the old one.
TARGET = 0.5


def name_of(kind: str, pair: int) -> str:
    """The folder of one sweep, below that of the bench."""
    return f"{WIDTHS}/{pair}-{kind}"


def render_widths(bench: Path, content: dict[str, object]) -> Iterator[str]:
    """Pool the pairs below the folder of a bench, put the figures below `widths`, tell them."""
    ratios = [ratio for pair in range(PAIRS) if (ratio := _ratio(bench, pair)) is not None]
    if not ratios:
        return
    pooled = estimate(ratios)
    content[WIDTHS] = {
        "ratio": pooled.mean,
        "low": pooled.low,
        "high": pooled.high,
        "pairs": ratios,
        "seconds": {kind: _seconds(bench, kind) for kind in (BEFORE, NOW)},
    }
    ends = "" if pooled.low is None else f" [{pooled.low:.2f}, {pooled.high:.2f}]"
    yield (
        f"width of the interval of the main ratio over that of fixed warm-ups and three launches, "
        f"in the same five minutes: {pooled.mean:.2f}{ends}, {len(ratios)} pairs of sweeps "
        + target_text(
            f"at most {TARGET}, {PAIRS} pairs", (pooled.low, pooled.high), up_to(TARGET), _WHY
        )
    )


def _ratio(bench: Path, pair: int) -> float | None:
    """Of one pair; None where one of them tells no interval."""
    now, before = (_log_width(bench / name_of(kind, pair)) for kind in (NOW, BEFORE))
    return now / before if now and before else None


def _log_width(sweep: Path) -> float | None:
    """Half of it; None where the sweep was not made or tells no interval."""
    if not (sweep / "runs").is_dir():
        return None
    width = half_width(sweep)
    return None if width is None else math.log1p(width)


def _seconds(bench: Path, kind: str) -> list[float]:
    """What all runs of each sweep took together."""
    sweeps = [bench / name_of(kind, pair) for pair in range(PAIRS)]
    tables = [read_sweep(path).table for path in sweeps if (path / "runs").is_dir()]
    return [float(table["total_s"].astype(float).sum()) for table in tables]


def new_sweeps(bench: Path) -> list[Path]:
    """The folders of the sweeps with the present profile, whether they were made or not."""
    return [bench / name_of(NOW, pair) for pair in range(PAIRS)]
