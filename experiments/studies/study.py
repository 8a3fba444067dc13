"""What a study is: a question to which a sweep is the answer.

Which points there are is decided by each study, in a module beside this one; what they have in
common is decided in `scope`.  Studies from the literature also share windows of fixed length, and
emulated accelerators of a published rate.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from experiments.data_sets.sample_images import SampleImages
from experiments.studies.scope import Scope
from experiments.sweep.definition import Choices
from experiments.sweep.sweep import PROFILES, QUICK, STANDARD, Profile
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.measurement import FixedWarmup, Measurement
from ps_allreduce.point.models.weights import ScaledModel
from ps_allreduce.point.resources import Device
from ps_allreduce.point.strategies import AnyStrategy
from ps_allreduce.point.strategies.stated import StrategySettings
from ps_allreduce.point.workload import EmulatedCompute, Precision, Workload
from ps_allreduce.record.records import RunRecord


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
        looks_first: at emulated links, before anything runs on them; never where it has a small
            form, which states them.
        has_brief: in the profile `quick` it has fewer points (`Scope.brief`).
        chooses_exchange: how gradients travel is chosen where nobody states it; in other studies
            they travel in buckets, or as the study says.
        optional: strategies whose points are left out where they cannot train what is asked for.
        tunes: in the profile `standard` a tuning comes first (`Scope.tuned`).
        workloads: what is trained where no model is stated; none for those of the profile.
        models: of files, in the place of workloads.
        small: its form for one machine; a study that has one needs a cluster in other profiles.
        search: comes first (`Scope.tuned`), but not in the small form.
        goes_on: decides, from the records of all points, whether there are more of them now; not
            where it is brief.
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
    models: tuple[str, ...] = ()
    small: SmallForm | None = None
    search: Search | None = None
    goes_on: Callable[[Sequence[RunRecord], Choices], bool] | None = None
    calibration: Callable[[Scope], Iterable[Experiment]] | None = None


#: Of the time of a step that computes; the backward pass has about twice the operations.
FORWARD_SHARE = 1 / 3

#: Digits behind the point that stated seconds have; results are named by them.
DIGITS = 4

#: Seconds of a run, in the small form and on a cluster.
QUICK_DEADLINE_S, STANDARD_DEADLINE_S = 120.0, 900.0


def fixed_profiles(warmup_steps: int, steps: int, launches: int) -> Mapping[str, Profile]:
    """The small form as stated; on a cluster 10 steps of warm-up, 100 measured ones, 5 launches."""
    return {
        QUICK: Profile(
            name=QUICK,
            measurement=_measured(warmup_steps, steps),
            repetitions=launches,
            deadline_s=QUICK_DEADLINE_S,
        ),
        STANDARD: Profile(
            name=STANDARD,
            measurement=_measured(10, 100),
            repetitions=5,
            deadline_s=STANDARD_DEADLINE_S,
        ),
    }


def _measured(warmup_steps: int, steps: int) -> Measurement:
    warmup = FixedWarmup(least_steps=warmup_steps, least_s=0.0)
    return Measurement(warmup=warmup, measured_steps=steps)


def emulated(model: str, *, divisor: int, batch: int, step_s: float) -> Workload:
    """The gradients of a model, and an accelerator that computes a step in so many seconds."""
    return Workload(
        model=ScaledModel(base=model, divisor=divisor),
        batch_per_worker=batch,
        emulated=_device(step_s),
    )


def in_precisions(scope: Scope, workload: Workload) -> Iterator[Workload]:
    """GPUs compute in mixed precision as well."""
    yield workload
    if scope.device is Device.GPU and workload.precision is Precision.FLOAT32:
        yield replace(workload, precision=Precision.MIXED_FLOAT16)


def _device(step_s: float) -> EmulatedCompute:
    """An emulated accelerator that computes a step in so many seconds."""
    forward_s = round(step_s * FORWARD_SHARE, DIGITS)
    return EmulatedCompute(forward_s=forward_s, backward_s=round(step_s - forward_s, DIGITS))
