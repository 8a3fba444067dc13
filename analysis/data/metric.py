"""What settings are compared by: a value of every launch, and which values are better.

Decides how a metric is told, and that one of which less is better is compared by its inverse: a
ratio above 1 says that the first setting is better, whatever is measured.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING

import pandas as pd

if TYPE_CHECKING:
    from analysis.data.cases import Case, Point


class Direction(Enum):
    """Which values are better."""

    MORE = 1
    LESS = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """A value of every launch that reaches it, above 0.

    Attributes:
        name: in a sentence.
        column: of the table of runs; unknown for a launch that did not reach the value.
        unit: `{unit}` stands for what an example is.
        direction: which values are better.
        always_reached: a launch that ended well has a value.  Of others, a target for instance, it
            may have none: then those that have one are a selection, of which nothing is decided.
    """

    name: str
    column: str
    unit: str
    direction: Direction
    always_reached: bool = True

    def unit_of(self, case: Case) -> str:
        """The unit, of a case whose examples are images, rows or texts."""
        return self.unit.format(unit=case.unit)

    def values(self, point: Point) -> pd.Series:
        """Of each launch that reached it, by turn."""
        return point.known(self.column)

    def gains(self, point: Point) -> pd.Series:
        """The values, inverted where less is better: of two settings the better one has more."""
        values = self.values(point)
        return values if self.direction is Direction.MORE else 1 / values

    def missed(self, point: Point) -> int:
        """Launches that ended well without a value."""
        return 0 if self.always_reached else int(point.launches[self.column].isna().sum())


#: What the suite compares unless another metric is named.
RATE = Metric(name="rate", column="examples_per_sec", unit="{unit}/s", direction=Direction.MORE)

#: What trainings are compared by that learn; the two of one launch are reached together.
TIME_TO_TARGET = Metric(
    name="target",
    column="target_s",
    unit="s",
    direction=Direction.LESS,
    always_reached=False,
)
EXAMPLES_TO_TARGET = replace(TIME_TO_TARGET, column="target_examples", unit="{unit}")
