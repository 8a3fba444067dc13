"""Runs end as they should whatever happens to their processes, and nothing survives them."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from experiments.sweep.folder import NOTE
from launchers.protocol import LaunchedRun
from ps_allreduce.point.placement import Policy
from ps_allreduce.point.strategies import (
    STRATEGIES,
    AllReduce,
    AnyStrategy,
    AsynchronousServers,
    Single,
    SynchronousServers,
)
from ps_allreduce.point.workload import Optimizer, Workload
from ps_allreduce.record.files import iter_record_paths, load_record
from ps_allreduce.record.provenance import ROOT
from ps_allreduce.record.records import RunRecord, Status
from ps_allreduce.record.steps import EventKind
from tests.cluster import LocalLauncher
from tests.real.killing import kill_when_measured
from tests.real.points import BRIEF, LONG, launch, point

pytestmark = [pytest.mark.tensorflow, pytest.mark.usefixtures("need_tensorflow", "two_cores")]

TINY_SWEEP = Path(__file__).with_name("tiny_sweep.py")


@pytest.mark.parametrize("strategy", list(STRATEGIES.values()))
def test_a_run_leaves_a_complete_measurement(
    strategy: type[AnyStrategy], launcher: LocalLauncher
) -> None:
    workers = 1 if strategy is Single else 2
    # Workers that do not wait for each other need some steps for a window that all are in.
    measurement = replace(BRIEF, measured_steps=100)
    run = launch(launcher, point(strategy, workers, measurement=measurement))
    assert run.status is Status.OK, f"{run.reason}\n{run.log[-2000:]}"
    assert run.metrics is not None
    assert run.metrics.examples_per_sec > 0
    assert run.metrics.compute_s > 0
    assert len(run.metrics.steps_per_worker) == workers
    assert run.phases.bring_up_s is not None
    assert run.phases.bring_up_s < 60
    assert {task.task.split(":")[0] for task in run.tasks} >= {"worker"}
    assert all(task.cpu_s is not None and task.peak_memory_bytes for task in run.tasks)
    assert "worker:0" in run.log


def test_a_run_in_which_events_are_traced(launcher: LocalLauncher) -> None:
    measurement = replace(BRIEF, measured_steps=30, event_steps=2)
    for strategy in (SynchronousServers, AsynchronousServers, AllReduce):
        run = launch(launcher, point(strategy, 2, measurement=measurement))
        assert run.status is Status.OK, run.reason
        assert run.events is not None
        assert run.num_messages is not None
        # two workers, two steps, three kinds of moments of every tensor
        assert len(run.events.time) == 2 * 2 * 3 * run.num_messages
        assert (run.events.time > 1e9).all()
        assert_ready_before_the_end(run)


def assert_ready_before_the_end(run: LaunchedRun) -> None:
    """Gradients were noted when they were ready, not when the whole step was over."""
    assert run.steps is not None
    assert run.events is not None
    ends = {
        (worker, step): end
        for worker, step, end in zip(run.steps.worker, run.steps.step, run.steps.end, strict=True)
    }
    ready = run.events.kind == EventKind.GRADIENT_READY
    for worker, step, time_s in zip(
        run.events.worker[ready], run.events.step[ready], run.events.time[ready], strict=True
    ):
        assert time_s < ends[worker, step]


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
    strategy: type[AnyStrategy], victim: str, data_dir: Path
) -> None:
    before = _descendants()
    with LocalLauncher(data_dir) as local:
        begin = time.monotonic()
        run = launch(local, point(strategy, 2, measurement=LONG), kill_when_measured(victim))
    assert run.status is Status.FAILED
    assert run.reason == f"{victim} was killed by SIGKILL"
    assert time.monotonic() - begin < 40
    assert _descendants() <= before


def _descendants() -> set[int]:
    return {process.pid for process in psutil.Process().children(recursive=True)}


def test_a_run_that_takes_too_long_times_out(data_dir: Path) -> None:
    with LocalLauncher(data_dir) as local:
        run = launch(local, point(SynchronousServers, 2, measurement=LONG), deadline_s=6.0)
        assert run.status is Status.TIMED_OUT
        assert run.reason == "not finished after 6 s; last heard of: measured"
        again = launch(local, point(Single))
        assert again.status is Status.OK


def test_more_servers_than_variables_is_one_sentence(launcher: LocalLauncher) -> None:
    experiment = point(AsynchronousServers, 1, num_ps=11, placement=Policy.GREEDY)
    run = launch(launcher, experiment)
    assert run.status is Status.FAILED
    assert "11 parameter servers but only 10 trainable variables" in run.reason


def test_loss_that_explodes_makes_a_run_invalid(launcher: LocalLauncher) -> None:
    workload = Workload(optimizer=Optimizer(learning_rate=1e12))
    run = launch(launcher, point(Single, workload=workload))
    assert run.status is Status.INVALID
    assert "loss is not finite from step" in run.reason


def _start(results: Path) -> subprocess.Popen[bytes]:
    """Start the tiny sweep; what it says goes to a file beside its results."""
    results.mkdir(parents=True, exist_ok=True)
    with (results / "said").open("wb") as said:
        return subprocess.Popen(
            [sys.executable, str(TINY_SWEEP), str(results)],
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
            stdout=said,
            stderr=said,
        )


def _said(results: Path) -> str:
    return (results / "said").read_text(encoding="utf-8")


def _sweep(results: Path) -> str:
    """Run the tiny sweep to its end and return what it says."""
    assert _start(results).wait(timeout=120) == 0, _said(results)
    return _said(results)


def _records(results: Path) -> list[RunRecord]:
    return [load_record(path) for path in iter_record_paths(results / "compare")]


def _wait_for_records(results: Path, count: int) -> None:
    deadline = time.monotonic() + 90
    while len(list(results.glob("compare/runs/*/*.json"))) < count:
        assert time.monotonic() < deadline, "the sweep does not get on"
        time.sleep(0.02)


def _ok_runs(records: list[RunRecord]) -> set[tuple[str, int]]:
    return {(r.experiment_id, r.repetition) for r in records if r.status is Status.OK}


def _planned_runs(results: Path) -> set[tuple[str, int]]:
    order = json.loads((results / "compare" / "sweep.json").read_text(encoding="utf-8"))["order"]
    pairs = (run.split("/") for run in order)
    return {(experiment_id, int(repetition)) for experiment_id, repetition in pairs}


def test_a_killed_sweep_resumes_to_the_same_set_of_runs(tmp_path: Path) -> None:
    suite = _start(tmp_path)
    _wait_for_records(tmp_path, 2)
    time.sleep(0.7)  # well into the next run
    family = psutil.Process(suite.pid).children(recursive=True)
    suite.kill()
    suite.wait()
    _, alive = psutil.wait_procs(family, timeout=10)
    assert not alive, f"survivors: {alive}"

    planned = _planned_runs(tmp_path)
    assert len(planned) == 6
    assert "kept" in _sweep(tmp_path)
    records = _records(tmp_path)
    assert _ok_runs(records) == planned == _planned_runs(tmp_path)
    (lost,) = [record for record in records if record.status is not Status.OK]
    assert (lost.status, lost.reason) == (Status.INTERRUPTED, "the suite ended during this run")
    assert len(records) == len(_ok_runs(records)) + 1
    assert not (tmp_path / "compare" / NOTE).exists()
    assert not list(tmp_path.rglob(".*.json.*"))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_sweep_keeps_a_record_of_it(number: signal.Signals, tmp_path: Path) -> None:
    suite = _start(tmp_path)
    _wait_for_records(tmp_path, 1)
    time.sleep(0.7)
    family = psutil.Process(suite.pid).children(recursive=True)
    suite.send_signal(number)
    assert suite.wait(timeout=30) == 130
    assert "the same command goes on" in _said(tmp_path)
    assert "Traceback" not in _said(tmp_path)
    _, alive = psutil.wait_procs(family, timeout=5)
    assert not alive
    statuses = [record.status for record in _records(tmp_path)]
    assert statuses.count(Status.INTERRUPTED) == 1


def test_a_killed_fork_server_costs_one_attempt(tmp_path: Path) -> None:
    suite = _start(tmp_path)
    _wait_for_records(tmp_path, 1)
    (server,) = psutil.Process(suite.pid).children()
    family = server.children(recursive=True)
    server.kill()
    _, alive = psutil.wait_procs(family, timeout=5)
    assert not alive
    assert suite.wait(timeout=120) == 1  # a run has failed, though its second attempt did not
    host = socket.gethostname()
    assert f"the fork server on {host}, from which its tasks are forked, ended" in _said(tmp_path)
    assert "Traceback" not in _said(tmp_path)
    assert len(_ok_runs(_records(tmp_path))) == 6


def test_run_one_prints_one_json_line(tmp_path: Path) -> None:
    done = subprocess.run(
        [
            *(sys.executable, "-m", "experiments", "run-one", "--strategy", "allreduce"),
            *("--num-workers", "2", "--results", str(tmp_path), "--allow-login-node"),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (line,) = done.stdout.splitlines()
    figures = json.loads(line)
    assert figures["status"] == "ok"
    assert figures["examples_per_sec"] > 0
    assert Path(figures["record_path"]).is_file()
    record = load_record(Path(figures["record_path"]))
    assert record.metrics is not None
    assert record.metrics.warmup_steps >= 10
    assert record.phases.warmup_s is not None
    assert record.phases.warmup_s >= 5.0
