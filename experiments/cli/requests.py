"""What was asked for on the command line, as small values.

Decides what is checked before anything else is known, and how a stated setting becomes part of an
experiment.  Nothing is run here.
"""

from __future__ import annotations

import hashlib
import itertools
import json
from dataclasses import dataclass, field, fields, replace
from pathlib import Path

from experiments.models.workload_request import WorkloadRequest
from experiments.studies.scope import Threads
from experiments.studies.study import Study
from experiments.sweep.sweep import Profile
from launchers.settings import LauncherSettings, option_of
from launchers.sites.kinds import network_of, site_kind
from ps_allreduce.declared import setting
from ps_allreduce.errors import UserError, at_least, at_most
from ps_allreduce.point.experiment import MOST_WORKERS, Experiment
from ps_allreduce.point.measurement import (
    MOST_WARMUP_S,
    Evaluation,
    EvaluationMode,
    FixedWarmup,
    Measurement,
)
from ps_allreduce.point.resources import Coordinator, Spread
from ps_allreduce.point.strategies import AnyStrategy
from ps_allreduce.point.strategies.stated import StrategySettings
from ps_allreduce.point.wire import WIRE_SETTINGS
from ps_allreduce.point.workload import Scaling
from ps_allreduce.record.choices import ExchangeMode
from ps_allreduce.serialization import identity_of


@dataclass(frozen=True, slots=True, kw_only=True)
class SpreadRequest:
    """How tasks are to be spread over hosts; None leaves a setting at its default.

    Attributes:
        workers_per_host: every number is a spread of its own, in ascending order.
    """

    workers_per_host: tuple[int, ...] | None = setting(
        "Workers on a host, where there are several.", unit="counts", instead=1, usual=True
    )
    ps_per_host: int | None = setting("Most servers on a host.")
    coordinator: Coordinator | None = setting("Host of the chief.", instead="first_worker")

    @property
    def is_axis(self) -> bool:
        """There is more than one spread."""
        return len(self.workers_per_host or ()) > 1

    def spread(self, launcher: str) -> Spread | None:
        """The only spread of what is no sweep, as in `spreads`."""
        return self.spreads(launcher)[0]

    def spreads(self, launcher: str) -> tuple[Spread | None, ...]:
        """Tasks per host, every way; only None for a launcher whose tasks all share this machine.

        Raises:
            UserError: something was stated about hosts, and there is one.
        """
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        stated = {name: value for name, value in values.items() if value is not None}
        if site_kind(launcher).several_hosts:
            numbers = stated.pop("workers_per_host", (Spread().workers_per_host,))
            return tuple(Spread(workers_per_host=number, **stated) for number in numbers)
        for name in stated:
            raise UserError(
                f"{option_of(name)}: the launcher {launcher} has one host; use another LAUNCHER."
            )
        return (None,)


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmupRequest:
    """Lengths that make a warm-up one of fixed length; with neither it ends as the profile says."""

    warmup_steps: int | None = setting("Steps of a fixed warm-up, not until step times are steady.")
    warmup_s: float | None = setting(
        "Seconds of a fixed warm-up; with steps, until both are over.", unit="s"
    )

    def __post_init__(self) -> None:
        if self.warmup_steps is not None:
            at_least(1, warmup_steps=self.warmup_steps)
        if self.warmup_s is not None:
            at_least(0, warmup_s=self.warmup_s)
            at_most(MOST_WARMUP_S, warmup_s=self.warmup_s)

    def put_into(self, measurement: Measurement) -> Measurement:
        """The measurement with the warm-up that was stated; an unstated length asks for nothing."""
        if self.warmup_steps is None and self.warmup_s is None:
            return measurement
        least_steps = 1 if self.warmup_steps is None else self.warmup_steps
        fixed = FixedWarmup(least_steps=least_steps, least_s=self.warmup_s or 0.0)
        return replace(measurement, warmup=fixed)


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationRequest:
    """What is to be evaluated after the measured steps; nothing where no batches are stated."""

    evaluation: EvaluationMode | None = setting(
        "Who evaluates after the measured steps: the first worker, or all.", instead="distributed"
    )
    evaluation_batches: int | None = setting("Batches to evaluate, of all workers together.")

    def __post_init__(self) -> None:
        if self.evaluation is not None and self.evaluation_batches is None:
            raise UserError(
                "--evaluation says who evaluates: state with --evaluation-batches how many batches."
            )

    def put_into(self, measurement: Measurement) -> Measurement:
        """The measurement with the evaluation that was stated."""
        if self.evaluation_batches is None:
            return measurement
        mode = self.evaluation or EvaluationMode.DISTRIBUTED
        stated = Evaluation(batches=self.evaluation_batches, mode=mode)
        return replace(measurement, evaluation=stated)


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepRequest:
    """How a sweep is to be made.

    Attributes:
        workers: ascending; None for as many as hosts allow.
        allreduce_threads, ps_threads: every number makes points of its own.
        budget_s, traced_steps: None for those of the profile.
    """

    profile: Profile
    workers: tuple[int, ...] | None = setting(
        "Numbers of workers, for instance 1,2,4.", unit="counts", usual=True
    )
    cores_per_worker: int | None = setting(
        "Cores of every worker.", instead="an equal share", usual=True
    )
    allreduce_threads: tuple[int, ...] | None = setting(
        "TensorFlow's threads of every worker without servers: all-reduce, and the bases.",
        unit="counts",
        instead="one less than its cores",
    )
    ps_threads: tuple[int, ...] | None = setting(
        "TensorFlow's threads of every worker with servers.",
        unit="counts",
        instead="one less than its cores",
    )
    repetitions: int | None = setting(
        "Launches of every point, instead of as many as time allows.", usual=True
    )
    budget_s: float | None = setting(
        "Time for all launches, not the profile's.", unit="s", usual=True
    )
    traced_steps: int | None = setting(
        "Steps to trace after the window, for a timeline; 0: none.", instead="the profile's"
    )
    exchange: ExchangeMode = setting(
        "How gradients travel: in buckets; whole (one pack or unbucketed); or the way that suits "
        "links and cores. A setting of buckets, such as --in-flight, chooses buckets.",
        ExchangeMode.AUTO,
    )
    warmup: WarmupRequest = field(default_factory=WarmupRequest)
    evaluation: EvaluationRequest = field(default_factory=EvaluationRequest)
    seed: int = setting("Seed of the order of runs.", 1)
    jobs_by_size: bool = setting(
        "In a batch system: a job for each number of hosts, one after the other, instead of one "
        "for all.",
        False,
    )
    retry_failed: bool = setting("Try points again that failed for good.", False, usual=True)
    dry_run: bool = setting("Say what would be run, and run nothing.", False, usual=True)

    def __post_init__(self) -> None:
        if self.workers:
            at_most(MOST_WORKERS, workers=max(self.workers))

    @property
    def chosen_profile(self) -> Profile:
        """The profile, with the repetitions, the budget and the warm-up that were stated."""
        profile = replace(
            self.profile,
            budget_s=self.profile.budget_s if self.budget_s is None else self.budget_s,
            measurement=self._measurement,
        )
        return profile if self.repetitions is None else profile.without_budget(self.repetitions)

    @property
    def _measurement(self) -> Measurement:
        traced = self._traced(self.profile.measurement)
        return self.evaluation.put_into(self.warmup.put_into(traced))

    @property
    def threads(self) -> list[Threads]:
        """Those of workers on both sides, each with each."""
        sides = self.allreduce_threads or (None,), self.ps_threads or (None,)
        return [Threads(allreduce=each, ps=other) for each, other in itertools.product(*sides)]

    def _traced(self, measurement: Measurement) -> Measurement:
        if self.traced_steps is None:
            return measurement
        return replace(measurement, event_steps=self.traced_steps)


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyRequest:
    """Everything that was asked for of a study.

    Attributes:
        name: of the study's command, and of the folder of its results.
        tuned: what a tuning before the sweep has found.
        default_model: the model is one of the profile's, and not the user's choice.
        status: exit status of what came before the sweep; 1 where launches of it failed.
    """

    name: str
    study: Study
    launcher: LauncherSettings
    sweep: SweepRequest
    workload: WorkloadRequest = field(default_factory=WorkloadRequest)
    spread: SpreadRequest = field(default_factory=SpreadRequest)
    settings: StrategySettings = field(default_factory=StrategySettings)
    tuned: tuple[Experiment, ...] = ()
    default_model: bool = False
    status: int = 0

    def __post_init__(self) -> None:
        if self.sweep.exchange is not ExchangeMode.WHOLE:
            return
        if not self.study.chooses_exchange:
            raise UserError(
                f"{self.name} says itself how gradients travel: leave --exchange whole out."
            )
        if stated := self._about_buckets:
            options = ", ".join(map(option_of, stated))
            raise UserError(f"{options}: of --exchange buckets only. Leave it or whole out.")

    @property
    def _about_buckets(self) -> list[str]:
        return [name for name in self.settings.stated if name in WIRE_SETTINGS]

    @property
    def exchange(self) -> ExchangeMode:
        """How gradients travel; nothing is chosen where a setting of buckets is stated."""
        is_said = not self.study.chooses_exchange or self._about_buckets
        return ExchangeMode.BUCKETS if is_said else self.sweep.exchange

    @property
    def looks_first(self) -> bool:
        """At emulated links, before anything runs on them."""
        return self.study.looks_first and self.study.small is None

    @property
    def waits_for_rate(self) -> bool:
        """A first look chooses the rate of emulated links that have none."""
        return self.looks_first and self.launcher.bandwidth is None

    @property
    def waits_for_batch(self) -> bool:
        """It chooses the batch of a worker as well: nothing is stated about what is trained."""
        asked, study = self.workload, self.study
        of_study = study.workloads or study.small
        stated = asked.batch_per_worker or asked.emulate or asked.scaling is not Scaling.WEAK
        is_stated = of_study or stated or (asked.model and not self.default_model)
        return self.waits_for_rate and not is_stated

    @property
    def sweep_dir(self) -> Path:
        """Where the sweep keeps its results."""
        return self.launcher.results / self.name

    @property
    def identity(self) -> str:
        """Twelve digits; equal for requests that are to be answered by the same choices.

        More repetitions, another seed or another time limit continue the same sweep.
        """
        asked = (
            self.name,
            self.launcher.launcher,
            self.launcher.hosts,
            self.launcher.ps_hosts,
            network_of(self.launcher),
            self.launcher.interface,
            self.workload,
            self.spread,
            self.settings,
            replace(
                self.sweep,
                repetitions=None,
                budget_s=None,
                seed=1,
                retry_failed=False,
                dry_run=False,
            ),
        )
        text = json.dumps(identity_of(asked), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:12]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRequest:
    """Everything that was asked for of a single run.

    Attributes:
        weights: file that takes the weights (`record.variables`).
    """

    strategy: type[AnyStrategy]
    num_workers: int = setting("Workers.", 1, usual=True)
    cores_per_worker: int = setting("Cores of every worker.", 1, usual=True)
    threads_per_worker: int = setting("TensorFlow's threads of every worker.", 1, usual=True)
    profile: Profile
    warmup: WarmupRequest = field(default_factory=WarmupRequest)
    evaluation: EvaluationRequest = field(default_factory=EvaluationRequest)
    weights: Path | None = setting(
        "Save weights to this .npz file: final ones as 0000 ..., initial ones as initial/0000 ...",
        usual=True,
    )
    launcher: LauncherSettings
    spread: SpreadRequest
    workload: WorkloadRequest
    settings: StrategySettings
