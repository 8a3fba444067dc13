"""What hermetic tests put in the place of machines: a launcher, a clock, and made-up runs."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st

from launchers.protocol import LaunchedRun
from ps_allreduce.experiment import (
    DIGITS,
    SYNTHETIC,
    Collective,
    EmulatedCompute,
    Experiment,
    LayoutKind,
    Profile,
    Resources,
    Workload,
    server_settings,
)
from ps_allreduce.models import MODELS
from ps_allreduce.placement import Policy, VariableSpec
from ps_allreduce.provenance import Provenance
from ps_allreduce.records import Phases, RunRecord, Status
from ps_allreduce.runner.messages import ClockPair, DriverResult, StartTask
from ps_allreduce.serialization import to_json
from ps_allreduce.steps import EventTable, Metrics, Phase, StepTable, save_raw
from ps_allreduce.strategies import TRAITS, Strategy

#: For properties: few examples, and no time limit on a busy machine.
fast = settings(max_examples=40, deadline=None)

PROFILE = Profile(name="test", repetitions=2)

METRICS = Metrics(
    images_per_sec=320.0,
    step_time_p50_s=0.05,
    step_time_p95_s=0.06,
    compute_s=0.03,
    communication_s=0.015,
    input_wait_s=0.005,
    warmup_steps=14,
    measured_steps=100,
    window_s=5.0,
    steps_per_worker=(100,),
)

PROVENANCE = Provenance(
    commit="0123456789ab",
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

#: Two layers as networks have them: period 2 in creation order, a large kernel and a small bias.
TWO_LAYERS = (
    VariableSpec(name="conv/kernel", shape=(3, 3, 3, 80), dtype="float32", trainable=True),
    VariableSpec(name="conv/bias", shape=(80,), dtype="float32", trainable=True),
    VariableSpec(name="dense/kernel", shape=(80, 40), dtype="float32", trainable=True),
    VariableSpec(name="dense/bias", shape=(40,), dtype="float32", trainable=True),
)


def make_experiment(
    strategy: Strategy = Strategy.PS_SYNC, num_workers: int = 2, **changes: Any
) -> Experiment:
    """A point of a strategy, with whatever the strategy needs."""
    traits = TRAITS[strategy]
    settings: dict[str, Any] = {"profile": PROFILE}
    if traits.uses_servers:
        settings |= server_settings(2, Policy.ROUND_ROBIN)
    if traits.uses_collective:
        settings |= {"collective": Collective.RING, "bytes_per_pack": 0}
    if traits.max_workers is not None:
        num_workers = min(num_workers, traits.max_workers)
    return Experiment(strategy=strategy, num_workers=num_workers, **(settings | changes))


def make_record(**changes: Any) -> RunRecord:
    """A run that went well."""
    experiment = changes.pop("experiment", make_experiment())
    settings: dict[str, Any] = {
        "sweep": "compare",
        "experiment_id": experiment.experiment_id,
        "repetition": 0,
        "attempt": 0,
        "status": Status.OK,
        "started_at": "2026-01-01T00:00:00.000+00:00",
        "finished_at": "2026-01-01T00:00:20.000+00:00",
        "provenance": PROVENANCE,
        "oversubscribed": False,
        "total_cores": 2,
        "metrics": METRICS,
    }
    return RunRecord(experiment=experiment, **(settings | changes))


def make_steps(
    worker: int,
    ends: Sequence[float],
    phases: Sequence[Phase],
    *,
    first_start: float = 0.0,
    pull_s: float = 0.0,
    wait_s: float = 0.0,
    compute_s: float = 0.0,
) -> StepTable:
    """One worker's steps back to back; the same pull, input wait and computation in each.

    The parameters arrive `pull_s` after a step's start, the input `wait_s` after that, and the
    gradients are ready `compute_s` later; the rest of the step is communication.
    """
    end = np.asarray(ends, dtype=np.float64)
    start = np.concatenate([[first_start], end[:-1]])
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


def no_events() -> EventTable:
    """The table of a run that traced no step."""
    none = np.zeros(0, dtype=np.int64)
    return EventTable(worker=none, step=none, kind=none, tensor=none, time=np.zeros(0))


def experiments() -> st.SearchStrategy[Experiment]:
    """Any experiment that makes sense."""
    return st.sampled_from(Strategy).flatmap(_points_of)


def _points_of(strategy: Strategy) -> st.SearchStrategy[Experiment]:
    traits = TRAITS[strategy]
    settings: st.SearchStrategy[dict[str, Any]] = st.just({})
    if traits.uses_servers:
        settings = st.builds(
            server_settings,
            st.integers(1, 9),
            st.sampled_from(Policy),
            st.sampled_from(LayoutKind),
            st.integers(1, 1 << 40),
        )
    if traits.uses_collective:
        settings = st.fixed_dictionaries(
            {
                "collective": st.sampled_from([Collective.RING, Collective.AUTO]),
                "bytes_per_pack": st.integers(0, 1 << 40),
            }
        )
    return st.builds(
        lambda some, **others: Experiment(strategy=strategy, **some, **others),
        settings,
        num_workers=st.integers(1, traits.max_workers or 99),
        launcher=st.sampled_from(["local", "emulated", "slurm"]),
        workload=workloads(),
        resources=st.builds(
            Resources, cores_per_worker=st.integers(1, 64), threads_per_worker=st.integers(1, 64)
        ),
        profile=st.builds(
            Profile,
            name=st.text(),
            warmup_s=seconds(),
            measured_steps=st.integers(1, 10_000),
            event_steps=st.integers(0, 5),
            deadline_s=st.floats(1, 1e6),
        ),
    )


def seconds() -> st.SearchStrategy[float]:
    """Durations and moments."""
    return st.floats(0, 1e10, allow_nan=False)


def workloads() -> st.SearchStrategy[Workload]:
    """Any workload that makes sense."""
    return st.builds(
        Workload,
        model=st.sampled_from(list(MODELS)),
        image_size=st.integers(75, 512),
        num_classes=st.integers(10, 1000),
        batch_per_worker=st.integers(1, 512),
        accumulation=st.integers(1, 8),
        input=st.sampled_from([SYNTHETIC, DIGITS]),
        learning_rate=st.floats(1e-6, 10),
        seed=st.integers(0, 1 << 31),
        emulated=st.none()
        | st.builds(
            EmulatedCompute,
            forward_s=st.floats(0.001, 1),
            backward_s=st.floats(0.001, 1),
            groups=st.integers(1, 16),
        ),
    )


@dataclass(slots=True)
class FakeClock:
    """Seconds that pass only when a test lets them pass."""

    now: float = 0.0

    def __call__(self) -> float:
        return self.now


def ok_run(**changes: Any) -> LaunchedRun:
    """What a launcher gives back for a run that went well."""
    ends = [0.1 * (index + 1) for index in range(6)]
    phases = [Phase.FIRST, Phase.WARMUP, *[Phase.MEASURED] * 4]
    run = LaunchedRun(
        status=Status.OK,
        hosts=("n9",),
        metrics=METRICS,
        phases=Phases(warmup_s=2.0, measured_s=3.0, total_s=10.0),
        steps=make_steps(0, ends, phases),
        events=no_events(),
        log="==> worker:0 <==\nhello\n",
    )
    return replace(run, **changes)


def bad_run(status: Status, reason: str = "worker:1 was killed by SIGKILL") -> LaunchedRun:
    """What a launcher gives back for a run that came to nothing."""
    return LaunchedRun(status=status, reason=reason, log="==> worker:1 <==\n")


@dataclass(slots=True)
class FakeLauncher:
    """A launcher that starts nothing: every launch ends as the script says, then well.

    Attributes:
        script: how the next launches end.
        launched: the experiments, in the order in which they were launched.
        on_launch: called for every launch.
        refuses: a point for which `check` raises what this returns.
    """

    script: list[LaunchedRun] = field(default_factory=list)
    variables: Iterable[VariableSpec] = TWO_LAYERS
    launched: list[Experiment] = field(default_factory=list)
    prepared: list[Workload] = field(default_factory=list)
    on_launch: Callable[[Experiment], None] = lambda _: None
    refuses: Callable[[Experiment], Exception | None] = lambda _: None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Nothing was started."""

    def check(self, experiment: Experiment) -> None:
        if (error := self.refuses(experiment)) is not None:
            raise error

    def describe(self, workload: Workload) -> tuple[VariableSpec, ...]:
        return tuple(self.variables)

    def prepare(self, workload: Workload) -> None:
        self.prepared.append(workload)

    def launch(
        self,
        experiment: Experiment,
        *,
        progress: Callable[[str], None],
        weights: Path | None = None,
    ) -> LaunchedRun:
        self.launched.append(experiment)
        self.on_launch(experiment)
        progress("measured")
        return self.script.pop(0) if self.script else ok_run()

    def is_oversubscribed(self, experiment: Experiment) -> bool:
        return False

    def total_cores(self, experiment: Experiment) -> int:
        return experiment.num_workers


#: The real fork server, but for its jobs: a task executes the Python text in `tf_config`.
FORK_SERVER_SCRIPT = """
import os, socket, sys
from ps_allreduce.runner import messages
from ps_allreduce.runner.forkserver import ForkServer

def execute(request, report):
    exec(request.tf_config, {"report": report, "request": request})

connection = socket.socket(fileno=int(sys.argv[-1]))
ready = messages.Ready(version=messages.VERSION, import_s=0.0, pid=os.getpid(), host="here")
connection.sendall(messages.encode(ready))
ForkServer(connection, {messages.StartTask: execute}).serve()
"""


def fake_task(name: str, code: str, log: Path) -> StartTask:
    """A request to the fake fork server: execute some Python text."""
    return StartTask(
        task=name,
        tf_config=code,
        experiment=make_experiment(Strategy.SINGLE),
        cores=(0,),
        threads=1,
        environment={},
        data_dir="",
        log=str(log),
        result="",
    )


FIVE_STEPS = (Phase.FIRST, Phase.WARMUP, *[Phase.MEASURED] * 3)


def driver_result(index: int, **changes: Any) -> DriverResult:
    """What a driver leaves after `FIVE_STEPS`, launched at second 100."""
    good = DriverResult(
        task=f"worker:{index}",
        connected_at=101.0 + index,
        built_at=103.0,
        first_step_at=106.0,
        warm_at=110.0,
        measured_at=115.0,
        checksums_before=(1, 2),
        checksums_after=(3, 4),
        traces_before=1,
        traces_after=1,
        requested_steps=5,
        clock_start=ClockPair(wall=0.0, monotonic=0.0),
        clock_end=ClockPair(wall=1.0, monotonic=1.0),
        gradient_bytes=88,
        num_messages=4,
    )
    return replace(good, **changes)


def leave_results(folder: Path, *drivers: DriverResult) -> list[Path]:
    """Write what drivers write; the paths of their results."""
    for index, result in enumerate(drivers):
        (folder / f"{index}.json").write_text(json.dumps(to_json(result)))
        steps = make_steps(index, [1, 2, 3, 4, 5], FIVE_STEPS)
        save_raw(folder / f"{index}.npz", steps, no_events())
    return [folder / str(index) for index in range(len(drivers))]
