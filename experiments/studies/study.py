"""What a study is: a question to which a sweep is the answer.

Which points there are is decided by each study, in a module beside this one; what they have in
common is decided in `scope`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field

from experiments.data_sets.sample_images import SampleImages
from experiments.studies.scope import Scope
from experiments.sweep.sweep import PROFILES, Profile
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.strategies import AnyStrategy
from ps_allreduce.point.strategies.base import StrategySettings
from ps_allreduce.point.workload import Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class SmallForm:
    """A study from the literature on one machine: real communication, emulated accelerators.

    It is what the profile quick takes where nothing else is stated.

    Attributes:
        workloads: what is trained, unless a model is stated.
        workers: numbers of workers.
        hosts: that are emulated.
        workers_per_host: of every spread.
        bandwidth: of every emulated link and direction, bits per second; None where the study gives
            each point its own.
        settings: of strategies, scaled as the workloads are.
        samples: real images that are made where no input is stated, and read as loose files and as
            TFRecord files beside synthetic ones.
    """

    workloads: tuple[Workload, ...]
    workers: tuple[int, ...]
    hosts: int
    workers_per_host: tuple[int, ...] = (1,)
    bandwidth: float | None = None
    settings: StrategySettings = field(default_factory=StrategySettings)
    samples: SampleImages | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """Settings that are launched before the sweep, which measures the best of them anew.

    Attributes:
        points: that are launched once each.
        contests: in which a point takes part; the fastest of each contest is measured, if there is
            a point that takes part in no other.
    """

    points: Callable[[Scope], Iterable[Experiment]]
    contests: Callable[[Experiment], Iterable[Hashable]]


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
        hosts: how many it wants at least where nobody states a launcher; None if it does not care.
        looks_first: at emulated links, before anything runs on them.
        has_brief: in the profile `quick` it has fewer points (`Scope.brief`).
        chooses_exchange: how gradients travel is chosen where nobody states it; in other studies
            they travel in buckets, or as the study says.
        optional: strategies whose points are left out where they cannot train what is asked for.
        tunes: in the profile `standard` a tuning comes first (`Scope.tuned`).
        workloads: what is trained where no model is stated; none for those of the profile.
        small: its form for one machine; a study that has one needs a cluster in other profiles.
        search: comes first (`Scope.tuned`), but not in the small form.
        calibration: points that are launched first; what they teach predicts `points` before the
            first of these is launched.
    """

    about: str
    points: Callable[[Scope], Iterable[Experiment]]
    profiles: Mapping[str, Profile] = field(default_factory=lambda: PROFILES)
    hosts: int | None = None
    looks_first: bool = True
    has_brief: bool = False
    chooses_exchange: bool = False
    optional: tuple[type[AnyStrategy], ...] = ()
    tunes: bool = False
    workloads: tuple[Workload, ...] = ()
    small: SmallForm | None = None
    search: Search | None = None
    calibration: Callable[[Scope], Iterable[Experiment]] | None = None
