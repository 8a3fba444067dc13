"""Entry point of one task: a server that waits for calls, or a driver that trains and measures.

Puts the strategy (`backends`) and the loop (`loop`) together and writes what they yield.  Decides
the thread pools of a task.
"""

from __future__ import annotations

import json
import math
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import tensorflow as tf

from ps_allreduce.backends import make_backend
from ps_allreduce.backends.contract import Backend, Rows, Task
from ps_allreduce.backends.stock.backends import serve_stock
from ps_allreduce.backends.worker_step import RowLayout
from ps_allreduce.cluster import TaskId, TaskType, TfConfig
from ps_allreduce.exchange.servers import make_server
from ps_allreduce.fork_server.messages import StartTask, TimeNeeded
from ps_allreduce.inspection.questions import Report
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.measurement import (
    SETTLED_STEPS,
    Learning,
    Measurement,
    RecordingComparison,
)
from ps_allreduce.record.evaluation_timings import EvaluationTable
from ps_allreduce.record.files import save_raw
from ps_allreduce.record.records import RecordingTimes
from ps_allreduce.record.step_table import EventTable, Phase, StepTable, concatenate
from ps_allreduce.record.variables import PlacementUsed, RunWeights, save_weights
from ps_allreduce.runner.loop import Stretch, Surroundings, TimedSteps, timed_loop
from ps_allreduce.runner.validity import ClockPair, DriverResult
from ps_allreduce.serialization import to_json

#: For a server that is pinned to one core TensorFlow would choose one thread, which deadlocks.
#: Operations that wait for a token, a sum or a timer hold no thread.
INTER_OP_THREADS = 8

#: A driver that is done stays until its run is over, no longer than this: its neighbours may still
#: fetch what it has sent last.
STAY_S = 60


def run_task(request: StartTask, report: Report) -> None:
    """Be one task until it is done; a server never is."""
    task = TaskId.parse(request.task)
    tf_config = TfConfig.parse(request.tf_config) if request.tf_config else None
    strategy = request.experiment.strategy
    is_driven = strategy.uses_servers and task.type is not TaskType.CHIEF
    as_shipped = strategy.as_shipped
    if tf_config is not None and is_driven:
        if as_shipped:
            serve_stock(tf_config)
        serve(tf_config, request.threads, collective=strategy.uses_collective)
    if not as_shipped:
        tf.config.threading.set_intra_op_parallelism_threads(request.threads)
        tf.config.threading.set_inter_op_parallelism_threads(INTER_OP_THREADS)
    task_of_run = Task(experiment=request.experiment, tf_config=tf_config)
    measurement = request.experiment.measurement
    if isinstance(measurement, RecordingComparison):
        compare_recording(request, task_of_run, measurement, report)
    else:
        drive(request, task_of_run, measurement, report)


def serve(tf_config: TfConfig, threads: int, *, collective: bool) -> None:
    """Be a parameter server, or a worker that a chief drives; never returns."""
    cluster, task = tf_config.cluster.as_dict(), tf_config.task
    server = make_server(
        cluster,
        str(task.type),
        task.index,
        intra=threads,
        inter=INTER_OP_THREADS,
        collective=collective,
    )
    server.join()


def drive(
    request: StartTask, task: Task, measurement: Measurement | Learning, report: Report
) -> None:
    """Train, measure, and write raw timings and the result."""
    clock_start = _clock_pair()
    backend, connected_at, built_at = _prepared(request, task, report)
    checksums_before = tuple(backend.weight_checksums())
    initial = None if request.weights is None else backend.read_weights()
    timed, starts = _measure(backend, task.experiment, measurement, report)
    _save_timings(Path(f"{request.result}.npz"), task.experiment, timed)
    if request.weights is not None and initial is not None:
        weights = RunWeights(initial=initial, final=backend.read_weights())
        save_weights(Path(request.weights), weights)
    messages, rows = backend.messages(), backend.rows_asked()
    result = DriverResult(
        task=request.task,
        connected_at=connected_at,
        built_at=built_at,
        first_step_at=starts[Phase.WARMUP].time,
        warm_at=starts[Phase.MEASURED].time,
        measured_at=starts[Phase.EVENTS].time,
        checksums_before=checksums_before,
        checksums_after=tuple(backend.weight_checksums()),
        traces_before=starts[Phase.WARMUP].traces,
        traces_after=starts[Phase.EVENTS].traces,
        requested_steps=sum(stretch.num_steps for stretch in timed.stretches),
        warmup_end=timed.warmup_end,
        clock_start=clock_start,
        clock_end=_clock_pair(),
        gradient_bytes=backend.gradient_bytes(rows),
        num_messages=len(messages),
        messages=(*messages, *backend.messages_of_rows(rows)) if _traces(measurement) else (),
        placement=_placement_used(backend),
        sparse=backend.sparse_gradients(),
        rows_asked=rows,
    )
    _leave(result, request, report)


def _prepared(request: StartTask, task: Task, report: Report) -> tuple[Backend, float, float]:
    """A backend that can make steps, when it was connected, and when its model was built."""
    backend = make_backend(task)
    backend.connect()
    report("connected")
    connected_at = time.time()
    backend.prepare(Path(request.data_dir))
    report("built")
    return backend, connected_at, time.time()


def _save_timings(path: Path, experiment: Experiment, timed: TimedSteps[Rows]) -> None:
    steps, events = _unpacked(experiment, timed.stretches)
    evaluated = [
        EvaluationTable.of_rows(rows, number) for number, rows in enumerate(timed.evaluated)
    ]
    save_raw(path, steps, events, concatenate([EvaluationTable.empty(), *evaluated]))


def _traces(measurement: Measurement | Learning) -> bool:
    return isinstance(measurement, Measurement) and measurement.event_steps > 0


@dataclass(frozen=True, slots=True)
class PhaseStart:
    """The beginning of a phase: seconds since the epoch, and traces of step functions so far."""

    time: float
    traces: int


def _measure(
    backend: Backend,
    experiment: Experiment,
    measurement: Measurement | Learning,
    report: Report,
) -> tuple[TimedSteps[Rows], dict[Phase, PhaseStart]]:
    """Run the timed loop, and note when phases start.

    That of EVENTS ends the measured one, whatever comes then.
    """
    starts: dict[Phase, PhaseStart] = {}

    def progress(phase: Phase) -> None:
        report(f"phase:{phase.name.lower()}")
        starts.setdefault(min(phase, Phase.EVENTS), PhaseStart(time.time(), backend.traces))

    around = Surroundings(
        clock=time.monotonic,
        progress=progress,
        expect=lambda seconds: report(TimeNeeded(seconds=seconds)),
        ends=RowLayout.ends,
        scores=_scores,
        num_workers=experiment.num_workers,
        examples_per_round=experiment.global_batch,
        meet=experiment.num_workers == 1 or experiment.strategy.communicates(),
    )
    timed = timed_loop(backend, measurement, around)
    starts.setdefault(Phase.EVENTS, PhaseStart(time.time(), backend.traces))
    return timed, starts


def _scores(rows: Rows) -> tuple[float, float]:
    """Mean loss and accuracy; where other workers evaluate, less than theirs."""
    if not len(rows):
        return -math.inf, -math.inf
    loss, accuracy, _ = EvaluationTable.of_rows(rows).means()
    return loss, accuracy


def compare_recording(
    request: StartTask, task: Task, comparison: RecordingComparison, report: Report
) -> None:
    """Alternate recorded and bare stretches of the same training, and write their durations."""
    backend = make_backend(task)
    backend.connect()
    backend.prepare(Path(request.data_dir))
    report("connected")
    for recorded in (True, False):
        backend.make(SETTLED_STEPS, recorded=recorded)
    taken = _time(backend, SETTLED_STEPS, recorded=True)
    count = int(backend.agree(comparison.steps_per_stretch(taken / SETTLED_STEPS)))
    durations: dict[bool, list[float]] = {True: [], False: []}
    for number in range(comparison.rounds):
        for recorded in (True, False) if number % 2 else (False, True):
            durations[recorded].append(_time(backend, count, recorded=recorded))
    result = RecordingTimes(
        recorded_s=tuple(durations[True]),
        bare_s=tuple(durations[False]),
        steps_per_stretch=count,
    )
    _leave(result, request, report)


def _leave(result: DriverResult | RecordingTimes, request: StartTask, report: Report) -> None:
    """Write the result, say that everything is done, and wait to be ended with all other tasks."""
    Path(f"{request.result}.json").write_text(json.dumps(to_json(result)), encoding="utf-8")
    sys.stdout.flush()
    sys.stderr.flush()
    report("done")
    time.sleep(STAY_S)


def _time(backend: Backend, num_steps: int, *, recorded: bool) -> float:
    begin = time.monotonic()
    backend.make(num_steps, recorded=recorded)
    return time.monotonic() - begin


def _clock_pair() -> ClockPair:
    return ClockPair(wall=time.time(), monotonic=time.monotonic())


def _placement_used(backend: Backend) -> PlacementUsed | None:
    placement = backend.placement()
    if placement is None:
        return None
    names = [spec.name for spec in backend.variables]
    return PlacementUsed.of(*placement, names, *backend.tables())


def _unpacked(
    experiment: Experiment, stretches: Sequence[Stretch[Rows]]
) -> tuple[StepTable, EventTable]:
    layout = RowLayout.of(stretches[0].rows, experiment.workload.accumulation)
    done: Counter[int] = Counter()
    steps, events = [], []
    for stretch in stretches:
        table = layout.steps(stretch.rows, stretch.phase, done)
        table = _mark_leading(table, stretch.leading, done)
        steps.append(table)
        events.append(layout.events(stretch.rows, table))
        done.update(table.worker.tolist())
    return concatenate(steps), concatenate(events)


def _mark_leading(table: StepTable, leading: int, done: Counter[int]) -> StepTable:
    """The first steps of each worker in a measured stretch still count as warm-up."""
    first = np.asarray([done[int(worker)] for worker in table.worker])
    early = table.step - first < leading
    return replace(table, phase=np.where(early, int(Phase.WARMUP), table.phase))
