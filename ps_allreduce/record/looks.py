"""How often a sweep looked at its main comparison while it was made.

`sweep.json` keeps it, because whoever tells the interval must account for it.  What a look costs is
decided in `analysis.stats.look_levels`.
"""

from __future__ import annotations

from dataclasses import dataclass

#: The choice in `sweep.json` that holds the looks of a sweep.
LOOKS = "looks at the main comparison"


@dataclass(frozen=True, slots=True, kw_only=True)
class Looks:
    """The looks at a sweep that were made so far, this one last.

    Attributes:
        launches: of each point at every look, growing.
        most: launches of each point that the sweep makes if it never stops early.
    """

    launches: tuple[int, ...]
    most: int

    def __post_init__(self) -> None:
        growing = list(self.launches) == sorted(set(self.launches))
        if not growing or not self.launches or not 1 <= self.launches[0] <= self.launches[-1]:
            raise ValueError(f"looks must be after more and more launches, not {self.launches}")
        if self.launches[-1] > self.most:
            raise ValueError(f"a look after {self.launches[-1]} of at most {self.most} launches")

    def with_last(self, launches: int) -> Looks:
        """These looks and the one at all launches, if that is another."""
        if launches <= self.launches[-1]:
            return self
        return Looks(launches=(*self.launches, launches), most=max(self.most, launches))
