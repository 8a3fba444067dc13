"""How thoroughly a sweep is run: `quick` to look, `standard` to publish.

Decides how long a run measures, how often every point is launched, and when a run has timed out.
The last two are no part of an experiment: a sweep of three launches can be continued to ten.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ps_allreduce.errors import at_least
from ps_allreduce.point.measurement import Measurement

QUICK, STANDARD = "quick", "standard"


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """How thoroughly a sweep is run.

    Attributes:
        measurement: of every point, unless a study decides otherwise.
        repetitions: launches of every point.
        deadline_s: a run that takes longer has timed out.
    """

    name: str
    measurement: Measurement = field(default_factory=Measurement)
    repetitions: int = 3
    deadline_s: float = 120.0

    def __post_init__(self) -> None:
        at_least(1, repetitions=self.repetitions, deadline_s=self.deadline_s)


PROFILES: Mapping[str, Profile] = {
    QUICK: Profile(name=QUICK, repetitions=3, deadline_s=60.0),
    STANDARD: Profile(
        name=STANDARD,
        measurement=Measurement(measured_s=20.0, event_steps=3),
        repetitions=5,
        deadline_s=900.0,
    ),
}
