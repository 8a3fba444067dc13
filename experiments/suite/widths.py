"""The main comparison with the profile of a pilot, and with that which sweeps had before.

Axes: two profiles, one right after the other, in pairs of sweeps.

Method: an all-reduce and synchronous servers with two workers each.  Before: a warm-up of five
seconds, windows of three, three launches, as they fit beside eight other points into five minutes
on two cores.  Now: what a pilot leaves for these two points in the same five minutes there.

Cost: five pairs of sweeps, together a quarter of an hour.

It should show an interval that is half as wide.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial

from analysis.planning.budget import FEWEST_STEPS, WINDOWS_S
from analysis.suite.rule.widths import BEFORE, NOW, PAIRS, name_of
from experiments.studies.study import Study
from experiments.suite.two_sides import two_sides
from experiments.sweep.sweep import QUICK_WARMUP, Profile
from ps_allreduce.point.measurement import FixedWarmup, Measurement

#: Launches of the new profile; `make compare LAUNCHER=local` has time for about as many here.
LAUNCHES_NOW = 12

PROFILES: Mapping[str, Profile] = {
    BEFORE: Profile(
        name=BEFORE,
        measurement=Measurement(warmup=FixedWarmup(), measured_steps=30, measured_s=3.0),
        repetitions=3,
    ),
    NOW: Profile(
        name=NOW,
        measurement=Measurement(
            warmup=QUICK_WARMUP, measured_steps=FEWEST_STEPS, measured_s=WINDOWS_S[0]
        ),
        repetitions=LAUNCHES_NOW,
    ),
}


STUDY = Study(about=__doc__, points=partial(two_sides, 2))


def sweeps() -> Iterator[tuple[str, Profile]]:
    """Names below the folder of the bench, and profiles, in the order in which they are made."""
    for pair in range(PAIRS):
        for kind in (BEFORE, NOW):
            yield name_of(kind, pair), PROFILES[kind]
