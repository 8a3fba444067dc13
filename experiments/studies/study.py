"""What a study is: how its points are made, and how thoroughly they may be measured.

Decides nothing about any study; each is a module beside this one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from experiments.studies.scope import Scope
from experiments.sweep.profiles import PROFILES, Profile
from ps_allreduce.point.experiment import Experiment


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """A question to which a sweep is the answer.

    Attributes:
        about: axes, method, cost, and what the study should show; help shows it.
        points: makes all points from what was asked for.  It refuses with a `UserError` what the
            study cannot answer, for instance without an emulated network.  A point may have a
            measurement of its own.
        profiles: by the name that users choose, the default first.  A study with repetitions, a
            deadline or a measurement of its own has its own meaning of these names.
    """

    about: str
    points: Callable[[Scope], Sequence[Experiment]]
    profiles: Mapping[str, Profile] = field(default_factory=lambda: PROFILES)
