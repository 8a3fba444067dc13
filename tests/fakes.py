"""What hermetic tests put in the place of machines: a launcher, a clock, and made-up runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from queue import Queue
from typing import Any, Self, TypeVar

import numpy as np

from launchers.run.conclude import LaunchedRun
from launchers.run.launcher import Capacity, HostsLauncher
from ps_allreduce.inspection.model_facts import FoundModel, TriedModel
from ps_allreduce.inspection.questions import Answer
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.models.recommenders import RecommenderModel
from ps_allreduce.point.models.trained import OwnModel, Unit
from ps_allreduce.point.optimizers import Adam, Sgd
from ps_allreduce.point.placement import VariableSpec
from ps_allreduce.point.strategies import AnyStrategy, SynchronousServers
from ps_allreduce.point.strategies.stated import StrategySettings
from ps_allreduce.point.wire import WIRE_SETTINGS, Wire
from ps_allreduce.point.workload import Precision, Workload
from ps_allreduce.record.hosts import HostFacts, HostRecord, Interface
from ps_allreduce.record.provenance import Provenance
from ps_allreduce.record.records import Phases, RunRecord, Sample, Status, TaskRecord
from ps_allreduce.record.step_table import EventTable, Floats, Metrics, Phase, StepTable

A = TypeVar("A", bound=Answer)

METRICS = Metrics(
    examples_per_sec=320.0,
    step_time_p50_s=0.05,
    step_time_p95_s=0.06,
    compute_s=0.03,
    communication_s=0.015,
    input_wait_s=0.005,
    forward_s=0.01,
    backward_s=0.02,
    warmup_steps=14,
    measured_steps=100,
    window_s=5.0,
    steps_per_worker=(100,),
)

PROVENANCE = Provenance(
    commit="0123456789ab",
    program="0c0ffee0",
    versions={"python": "3.11.2", "tensorflow": "2.21.0"},
    environment="venv",
    command="python -m experiments compare",
    host="n9",
    system="Linux",
    cpu_model="A processor",
    cpu_count=4,
    cpu_flags=("avx", "avx2"),
    memory_bytes=8_000_000_000,
    affinity=(0, 1, 2, 3),
    load_average=0.25,
    settings={"OMP_NUM_THREADS": "default"},
    fingerprint="0badcafe",
)

WORKER = TaskRecord(task="worker:0", host="n9", address="n9:1", cores=(0,), pid=1)

#: Two layers as networks have them: period 2 in creation order, a large kernel and a small bias.
TWO_LAYERS = (
    VariableSpec(name="conv/kernel", shape=(3, 3, 3, 80), dtype="float32", trainable=True),
    VariableSpec(name="conv/bias", shape=(80,), dtype="float32", trainable=True),
    VariableSpec(name="dense/kernel", shape=(80, 40), dtype="float32", trainable=True),
    VariableSpec(name="dense/bias", shape=(40,), dtype="float32", trainable=True),
)


#: What strategies train that are about rows of tables.
LOOKING_UP = Workload(model=RecommenderModel(), optimizer=Sgd(learning_rate=0.1))

#: A model of a user's own, and what was found out about it.
OWN = OwnModel(
    name="mine.py:build",
    module="mine",
    function="build",
    digest="0123456789abcdef",
    has_dataset=True,
    notes=("trained with SGD, not your Lion",),
)

FOUND = FoundModel(files=("mine.py",), unit=Unit.TOKENS, tokens_per_example=64, has_dataset=True)

TRIED = TriedModel(
    optimizer=Adam(),
    precision=Precision.FLOAT32,
    notes=OWN.notes,
    only_whole="it trains no keras.layers.Embedding, of which rows could be exchanged alone",
    variables=TWO_LAYERS,
    step_s=0.0123,
    peak_memory_bytes=1_230_000_000,
)


def make_experiment(
    strategy: type[AnyStrategy] = SynchronousServers, num_workers: int = 2, **changes: Any
) -> Experiment:
    """A point of a strategy: its settings and those of an experiment, side by side by name.

    Two servers, or one pack, and a model that it can train, if nothing else is said.
    """
    if "workload" not in changes and strategy.refusal(Workload()):
        changes["workload"] = LOOKING_UP
    return Experiment(
        num_workers=min(num_workers, strategy.max_workers or num_workers),
        strategy=make_strategy(strategy, changes),
        **{name: value for name, value in changes.items() if name not in STRATEGY_NAMES},
    )


STRATEGY_NAMES = {field.name for field in fields(StrategySettings)} | {"wire"}


def make_strategy(strategy: type[AnyStrategy], changes: Mapping[str, Any]) -> AnyStrategy:
    """A strategy with those of the changes that are its settings."""
    stated = {name: value for name, value in changes.items() if name in STRATEGY_NAMES}
    wire: Wire | None = stated.pop("wire", None)
    if wire is not None:
        stated |= {name: getattr(wire, name) for name in WIRE_SETTINGS}
    elif "bytes_per_pack" in strategy.understands():
        stated.setdefault("bytes_per_pack", 0)
    if strategy.uses_servers:
        stated.setdefault("num_ps", 2)
    return strategy.of(StrategySettings(**stated))


def make_facts(name: str = "n9", **changes: Any) -> HostFacts:
    """What a fork server sees on a host of a cluster."""
    facts = HostFacts(
        name=name,
        interfaces=(
            Interface(name="lo", address="127.0.0.1", prefix_length=8),
            Interface(name="eth0", address="10.0.0.9", prefix_length=24, bits_per_s=1e9),
        ),
        cores=(0, 1, 2, 3),
        cpu_model="A processor",
        cpu_flags=("avx", "avx2"),
        memory_bytes=8_000_000_000,
        versions={"python": "3.11.2", "tensorflow": "2.21.0"},
    )
    return replace(facts, **changes)


def make_host(name: str = "n9", **changes: Any) -> HostRecord:
    """A host's part in a run, over its loopback."""
    facts = changes.pop("facts", make_facts(name))
    host = HostRecord(name=name, facts=facts, address="127.0.0.1", interface=facts.interfaces[0])
    return replace(host, **changes)


def make_sample(time: float = 1.0, host: str = "n9", **changes: Any) -> Sample:
    """A look at a host on which nothing runs."""
    nothing: Any = {"cpu_s": {}, "memory_bytes": {}, "sent_bytes": {}, "received_bytes": {}}
    return replace(Sample(time=time, host=host, busy_s=100.0, idle_s=900.0, **nothing), **changes)


def fitted(metrics: Metrics | None, experiment: Experiment) -> Metrics | None:
    """Figures with as many workers as the point has, and a window that the rate has steps for."""
    if metrics is None:
        return None
    return replace(
        metrics,
        window_s=100 * experiment.global_batch / metrics.examples_per_sec,
        steps_per_worker=(100,) * experiment.num_workers,
    )


def make_record(**changes: Any) -> RunRecord:
    """A run that went well."""
    experiment = changes.pop("experiment", make_experiment())
    record = RunRecord(
        experiment=experiment,
        sweep="compare",
        profile="quick",
        experiment_id=experiment.experiment_id,
        repetition=0,
        attempt=0,
        status=Status.OK,
        started_at="2026-01-01T00:00:00.000+00:00",
        finished_at="2026-01-01T00:00:20.000+00:00",
        provenance=PROVENANCE,
        oversubscribed=False,
        total_cores=2,
        tasks=(WORKER,),
        metrics=fitted(METRICS, experiment),
    )
    return replace(record, **changes)


def make_steps(
    worker: int,
    ends: Sequence[float],
    phases: Sequence[Phase],
    *,
    first_start: float = 0.0,
    pull_s: float = 0.0,
    wait_s: float = 0.0,
    compute_s: float | Floats = 0.0,
) -> StepTable:
    """One worker's steps back to back; the same pull, input wait and computation in each.

    The parameters arrive `pull_s` after a step's start, the input `wait_s` after that, and the
    gradients are ready `compute_s` later; the rest of the step is communication.
    """
    end = np.asarray(ends, dtype=np.float64)
    start = np.concatenate([[first_start], end])[: len(end)]
    pulled = start + pull_s
    ready = pulled + wait_s
    moments = [ready, ready + compute_s / 3, ready + compute_s]
    return StepTable(
        worker=np.full(len(end), worker, dtype=np.int64),
        step=np.arange(len(end), dtype=np.int64),
        phase=np.asarray(phases, dtype=np.int64),
        loss=np.full(len(end), 2.0),
        start=start,
        pulled=pulled,
        end=end,
        batches=np.stack(moments, axis=1)[:, np.newaxis, :],
        releases=np.zeros((len(end), 0)),
    )


def unseen(steps: StepTable) -> StepTable:
    """The same steps where nobody sees into them."""
    nothing = np.zeros((len(steps), 0, 3))
    return replace(steps, pulled=np.full(len(steps), np.nan), batches=nothing)


#: Figures of a run into whose steps nobody sees.
UNSEEN: dict[str, None] = dict.fromkeys(
    ("compute_s", "communication_s", "input_wait_s", "forward_s", "backward_s")
)


def no_events() -> EventTable:
    """The table of a run that traced no step."""
    none = np.zeros(0, dtype=np.int64)
    return EventTable(worker=none, step=none, kind=none, tensor=none, time=np.zeros(0))


@dataclass(slots=True)
class FakeClock:
    """Seconds that pass only when a test lets them pass."""

    now: float = 0.0

    def __call__(self) -> float:
        return self.now


def ok_run(**changes: Any) -> LaunchedRun:
    """What a launcher gives back for a run that went well."""
    run = LaunchedRun(
        status=Status.OK,
        hosts=(make_host("n9"),),
        tasks=(WORKER,),
        metrics=METRICS,
        machine_busy=0.5,
        phases=Phases(warmup_s=2.0, measured_s=3.0, total_s=10.0),
        steps=steps_within(0.4),
        events=no_events(),
        log="==> worker:0 <==\nhello\n",
    )
    return replace(run, **changes)


def steps_within(window_s: float) -> StepTable:
    """Steps of one worker that were measured in a window of this length."""
    phases = [Phase.FIRST, Phase.WARMUP, *[Phase.MEASURED] * 8]
    return make_steps(0, [window_s / 8 * (index + 1) for index in range(10)], phases)


def fit(run: LaunchedRun, experiment: Experiment) -> LaunchedRun:
    """The run with figures and raw timings that belong to the point and to each other."""
    metrics = fitted(run.metrics, experiment)
    steps = run.steps if metrics is None else steps_within(metrics.window_s)
    return replace(run, metrics=metrics, steps=steps)


def bad_run(status: Status, reason: str = "worker:1 was killed by SIGKILL") -> LaunchedRun:
    """What a launcher gives back for a run that came to nothing."""
    return LaunchedRun(status=status, reason=reason, log="==> worker:1 <==\n")


@dataclass(slots=True)
class FakeLauncher(HostsLauncher):
    """A launcher that starts nothing: every launch ends as the script says, then well.

    Attributes:
        script: how the next launches end.
        launched: the experiments, in the order in which they were launched.
        on_launch: called for every launch.
        refuses: a point for which `check` raises what this returns.
        facts: of the hosts of a cluster.
        found, tried: what a user's own model is, or the error that it makes.
        asked: what was asked about it.
        time_left: seconds until the scheduler's limit.
    """

    script: list[LaunchedRun] = field(default_factory=list)
    variables: Iterable[VariableSpec] = TWO_LAYERS
    launched: list[Experiment] = field(default_factory=list)
    prepared: list[Workload] = field(default_factory=list)
    on_launch: Callable[[Experiment], None] = lambda _: None
    refuses: Callable[[Experiment], Exception | None] = lambda _: None
    num_hosts: int = 1
    cores_per_host: int = 4
    facts: tuple[HostFacts, ...] = ()
    found: FoundModel | Exception = FOUND
    tried: TriedModel | Exception = TRIED
    asked: list[object] = field(default_factory=list)
    job_id: str | None = None
    congestion: str = ""
    time_left: Callable[[], float | None] = lambda: None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        """Nothing was started."""

    def check(self, experiment: Experiment) -> None:
        if (error := self.refuses(experiment)) is not None:
            raise error

    def describe(self, workload: Workload) -> tuple[VariableSpec, ...]:
        return tuple(self.variables)

    def prepare(self, workload: Workload) -> None:
        self.prepared.append(workload)

    def find_model(
        self, root: Path, module: str, function: str, arguments: Sequence[str], deadline_s: float
    ) -> FoundModel:
        self.asked.append((root, module, function, tuple(arguments)))
        if isinstance(self.found, Exception):
            raise self.found
        return self.found

    def try_model(self, workload: Workload, deadline_s: float) -> TriedModel:
        self.asked.append(workload)
        if isinstance(self.tried, Exception):
            raise self.tried
        return self.tried

    def launch(
        self,
        experiment: Experiment,
        *,
        deadline_s: float,
        limit_s: float | None = None,
        progress: Callable[[str], None],
        weights: Path | None = None,
    ) -> LaunchedRun:
        self.launched.append(experiment)
        self.on_launch(experiment)
        progress("measured")
        return fit(self.script.pop(0) if self.script else ok_run(), experiment)

    def capacity(self) -> Capacity:
        return Capacity(num_hosts=self.num_hosts, cores_per_host=self.cores_per_host)

    def host_facts(self) -> tuple[HostFacts, ...]:
        return self.facts

    def time_left_s(self) -> float | None:
        return self.time_left()


class Ear:
    """Takes in what a job reports, from whatever thread."""

    def __init__(self) -> None:
        self._heard: Queue[str | Answer] = Queue()

    def __call__(self, told: str | Answer) -> None:
        self._heard.put(told)

    def expect(self, kind: type[A]) -> A:
        heard = self._heard.get(timeout=10.0)
        assert isinstance(heard, kind)
        return heard
