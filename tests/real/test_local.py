"""Runs end as they should whatever happens to their processes, and nothing survives them."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from analysis.timeline.trace_events import STEP, trace_of
from analysis.timeline.traced import TracedRun
from experiments.sweep.folder import NOTE
from launchers.run.conclude import LaunchedRun
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.inputs.data import Digits, OwnDataset
from ps_allreduce.point.measurement import Evaluation, EvaluationMode, Learning
from ps_allreduce.point.models.trained import OwnModel
from ps_allreduce.point.optimizers import Momentum, RateSchedule, Sgd
from ps_allreduce.point.placement import Policy
from ps_allreduce.point.strategies import (
    STRATEGIES,
    AllReduce,
    AnyStrategy,
    AsynchronousServers,
    Single,
    SynchronousServers,
)
from ps_allreduce.point.workload import EmulatedCompute, Workload
from ps_allreduce.record.files import iter_record_paths, load_record
from ps_allreduce.record.provenance import ROOT
from ps_allreduce.record.records import RunRecord, Status
from tests.cluster import LocalLauncher
from tests.conftest import need_module_of
from tests.fakes import make_record
from tests.real.machines import wait_until
from tests.real.points import BRIEF, LONG, in_flight, kill_when_measured, launch, point
from tests.trace_events import check_trace, counts, wanted_flows

pytestmark = [pytest.mark.tensorflow, pytest.mark.usefixtures("two_cores")]

#: Of the small model, trainable ones.
NUM_VARIABLES = 10

#: On a busy machine.
PATIENCE_S = 120.0


@pytest.mark.parametrize("strategy", list(STRATEGIES.values()))
def test_a_run_leaves_a_complete_measurement(
    strategy: type[AnyStrategy], launcher: LocalLauncher
) -> None:
    need_module_of(strategy)
    workers = 1 if strategy is Single else 2
    # Workers that do not wait for each other need some steps for a window that all are in.
    measurement = replace(BRIEF, measured_steps=100, event_steps=2)
    if not strategy.as_shipped:
        measurement = replace(measurement, evaluation=Evaluation(batches=3))
    own = point(strategy, workers, measurement=measurement)
    run = launch(launcher, own)
    assert run.status is Status.OK, f"{run.reason}\n{run.log[-2000:]}"
    assert run.metrics is not None
    assert run.metrics.examples_per_sec > 0
    assert (run.metrics.compute_s or 0) > 0 or strategy.as_shipped
    assert len(run.metrics.steps_per_worker) == workers
    assert run.phases.bring_up_s is not None
    assert {task.task.split(":")[0] for task in run.tasks} >= {"worker"}
    assert all(task.cpu_s is not None and task.peak_memory_bytes for task in run.tasks)
    assert "worker:0" in run.log
    if not strategy.as_shipped:  # of whose steps nobody sees the inside
        assert_events_are_traced(run, workers, own.strategy.is_sparse)
        assert_all_was_evaluated(run, workers)
    assert_the_timeline_holds_all(run, own)


def assert_events_are_traced(run: LaunchedRun, workers: int, has_rows: bool) -> None:
    """Every moment of every tensor; gradients when they were ready, not when the step was over."""
    assert run.steps is not None
    assert run.events is not None
    assert run.num_messages is not None
    # Without messages, every variable; rows of all tables count as one.  Two steps, three moments.
    traced = (run.num_messages or NUM_VARIABLES) + has_rows
    assert len(run.events.time) == workers * 2 * 3 * traced
    assert (run.events.time > 1e9).all()


def assert_all_was_evaluated(run: LaunchedRun, workers: int) -> None:
    """By all workers, in less time than the run took."""
    assert run.evaluation is not None
    assert sum(run.evaluation.batches_per_worker) == 3
    assert min(run.evaluation.batches_per_worker) == 3 // workers
    assert 0 < run.evaluation.seconds < (run.phases.total_s or 0)


@pytest.mark.parametrize("emulated", [None, EmulatedCompute(forward_s=0.05, backward_s=0.05)])
def test_whoever_evaluates_finds_the_same_in_other_time(
    emulated: EmulatedCompute | None, launcher: LocalLauncher
) -> None:
    found = []
    for strategy, mode in zip((AllReduce, SynchronousServers), EvaluationMode, strict=True):
        evaluation = Evaluation(batches=6, mode=mode)
        measurement = replace(BRIEF, evaluation=evaluation)
        workload = Workload(data=Digits(), emulated=emulated)
        run = launch(launcher, point(strategy, 2, measurement=measurement, workload=workload))
        assert run.evaluation is not None, run.reason
        found.append(run.evaluation)
    alone, together = found
    assert alone.batches_per_worker == (6, 0)
    assert together.batches_per_worker == (3, 3)
    # The same examples, in other batches, by weights that both have trained.
    assert alone.loss == pytest.approx(together.loss, rel=1e-4)
    if emulated is not None:
        # A busy machine is late, and never early.
        assert alone.seconds > 6 * 0.05 * 0.98
        assert 3 * 0.05 * 0.98 < together.seconds < alone.seconds


def test_a_training_ends_when_it_has_learned(launcher: LocalLauncher, data_dir: Path) -> None:
    folder = data_dir / "models" / "handwriting"
    folder.mkdir(parents=True)
    shutil.copy(ROOT / "docs" / "examples" / "handwriting.py", folder)
    evaluation = Evaluation(batches=4, mode=EvaluationMode.SEQUENTIAL, gradient_norm=True)
    learning = Learning(
        evaluation=evaluation, evaluation_steps=10, target_loss=1.0, most_examples=6400
    )
    model = OwnModel(
        name="handwriting.py:build",
        module="handwriting",
        function="build",
        digest="handwriting",
        has_dataset=True,
        learning=learning,
    )
    schedule = RateSchedule(linear_scaling=True, rate_warmup_steps=20)
    workload = Workload(
        model=model, data=OwnDataset(), optimizer=Sgd(learning_rate=0.1), schedule=schedule
    )
    own = point(
        AsynchronousServers, 2, workload=workload, measurement=learning, synchronous_steps=11
    )
    run = launch(launcher, own)
    assert run.status is Status.OK, f"{run.reason}\n{run.log[-2000:]}"
    assert run.learned is not None
    assert run.learned.target_s is not None
    assert run.learned.loss[-1] <= 1.0 < min(run.learned.loss[:-1])
    assert min(run.learned.gradient_norm) > 0
    assert run.learned.seconds[0] == 0.0
    # Every worker has made a step before the first evaluation, and ten more before the second.
    assert run.learned.examples[:2] == (2 * 16, 22 * 16)
    assert run.learned.staleness[0] >= 2 * 11
    assert sum(run.learned.staleness) * 16 == run.learned.examples[-1]


def assert_the_timeline_holds_all(run: LaunchedRun, own: Experiment) -> None:
    """Every step and event, and messages that carry all gradients to where they are placed."""
    assert run.steps is not None
    assert run.events is not None
    record = make_record(experiment=own, tasks=run.tasks, messages=run.messages)
    traced = TracedRun.of(record, run.steps, run.events)
    assert traced is not None
    trace = trace_of(traced)
    check_trace(trace)
    is_step = [event.get("cat") == STEP for event in trace["traceEvents"]]
    assert sum(is_step) == len(traced.steps) == own.num_workers * 2
    if own.strategy.communicates():
        # Rows go to all servers, so no single one acknowledges them.
        to_servers = own.strategy.uses_servers and not own.strategy.is_sparse
        wanted = wanted_flows(run.events, acknowledged=to_servers)
        assert counts(trace, "stf") == wanted
        assert sum(message.num_bytes for message in run.messages) == run.gradient_bytes
    if run.placement is not None and not own.strategy.as_shipped:
        loads = Counter[int | None]()
        for message in run.messages:
            loads[message.server] += message.num_bytes
        assert loads == dict(enumerate(run.placement.bytes_per_server))


@pytest.mark.parametrize(
    ("strategy", "victim"),
    [
        (AllReduce, "worker:1"),
        (SynchronousServers, "worker:1"),
        (SynchronousServers, "ps:0"),
        (AsynchronousServers, "ps:1"),
        (AsynchronousServers, "chief:0"),
    ],
)
def test_a_killed_task_ends_the_run_with_its_name(
    strategy: type[AnyStrategy], victim: str, launcher: LocalLauncher
) -> None:
    before = _descendants()
    run = launch(launcher, point(strategy, 2, measurement=LONG), kill_when_measured(victim))
    assert (run.status, run.reason) == (Status.FAILED, f"{victim} was killed by SIGKILL")
    assert _descendants() <= before


def _descendants() -> set[int]:
    return {process.pid for process in psutil.Process().children(recursive=True)}


def test_a_run_that_takes_too_long_times_out_whatever_is_set_up_for_keras(
    data_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".keras").mkdir()
    (tmp_path / ".keras" / "keras.json").write_text('{"image_data_format": "channels_first"}')
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("KERAS_BACKEND", "torch")
    before = _descendants()
    with LocalLauncher(data_dir) as local:
        local.describe(Workload())  # the fork server is up, however busy the machine
        run = launch(local, point(SynchronousServers, 2, measurement=LONG), deadline_s=10.0)
        assert run.status is Status.TIMED_OUT
        assert run.reason == "not finished after 10 s; last heard of: measured"
        again = launch(local, point(Single))
        assert again.status is Status.OK
        assert [task.settings["data_layout"] for task in again.tasks] == ["channels_last"]
    assert _descendants() <= before


def test_more_servers_than_variables_is_one_sentence(launcher: LocalLauncher) -> None:
    experiment = point(AsynchronousServers, 1, num_ps=11, placement=Policy.GREEDY)
    run = launch(launcher, experiment)
    assert run.status is Status.FAILED
    assert f"11 parameter servers but only {NUM_VARIABLES} trainable variables" in run.reason


def test_loss_that_explodes_makes_a_run_invalid(launcher: LocalLauncher) -> None:
    workload = Workload(optimizer=Momentum(learning_rate=1e12))
    run = launch(launcher, point(Single, workload=workload))
    assert run.status is Status.INVALID
    assert "loss is not finite from step" in run.reason


def _start(results: Path) -> subprocess.Popen[bytes]:
    """Start the tiny sweep; what it says goes to a file beside its results."""
    results.mkdir(parents=True, exist_ok=True)
    with (results / "said").open("wb") as said:
        return subprocess.Popen(
            [sys.executable, "-m", "tests.real.tiny_sweep", str(results)],
            cwd=ROOT,
            stdout=said,
            stderr=said,
        )


def _said(results: Path) -> str:
    return (results / "said").read_text(encoding="utf-8")


def _records(results: Path) -> list[RunRecord]:
    return [load_record(path) for path in iter_record_paths(results / "compare")]


def _start_and_end(results: Path, number: signal.Signals, ok_runs: int) -> int:
    """Start the sweep, signal it in the middle of a run after so many; its status."""
    suite = _start(results)
    wait_until(
        lambda: (
            len(_ok_runs(_records(results))) >= ok_runs and bool(in_flight(results / "compare"))
        ),
        PATIENCE_S,
        lambda: _said(results),
    )
    time.sleep(0.5)  # well into the run
    family = psutil.Process(suite.pid).children(recursive=True)
    suite.send_signal(number)
    status = suite.wait(PATIENCE_S)
    _, alive = psutil.wait_procs(family, timeout=10)
    assert not alive, f"survivors: {alive}"
    return status


def _ok_runs(records: list[RunRecord]) -> set[tuple[str, int]]:
    return {(r.experiment_id, r.repetition) for r in records if r.status is Status.OK}


def _planned_runs(results: Path) -> set[tuple[str, int]]:
    order = json.loads((results / "compare" / "sweep.json").read_text(encoding="utf-8"))["order"]
    pairs = (run.split("/") for run in order)
    return {(experiment_id, int(repetition)) for experiment_id, repetition in pairs}


def test_a_sweep_that_is_ended_in_any_way_resumes_to_the_same_set_of_runs(tmp_path: Path) -> None:
    assert _start_and_end(tmp_path, signal.SIGTERM, 1) == 130
    assert "The same command makes the runs that are missing" in _said(tmp_path)
    assert "Traceback" not in _said(tmp_path)
    statuses = [record.status for record in _records(tmp_path)]
    assert statuses.count(Status.INTERRUPTED) == 1
    assert _start_and_end(tmp_path, signal.SIGKILL, 2) == -signal.SIGKILL
    planned = _planned_runs(tmp_path)
    assert len(planned) == 6

    assert _start(tmp_path).wait(PATIENCE_S) == 0, _said(tmp_path)
    assert "2 were made before" in _said(tmp_path)
    records = _records(tmp_path)
    assert _ok_runs(records) == planned == _planned_runs(tmp_path)
    lost = [record.reason for record in records if record.status is Status.INTERRUPTED]
    assert lost.count("the suite ended during this run") == 1
    assert len(records) == len(planned) + len(lost) == 6 + 2
    assert not (tmp_path / "compare" / NOTE).exists()
    assert not list(tmp_path.rglob(".*.json.*"))
