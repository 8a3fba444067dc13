"""The checklist for GPUs: what passes, what fails, and what cannot be tried."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from experiments import surroundings
from experiments.suite.accept_gpu import (
    BYTES_PER_IMAGE,
    MOST_IMAGES,
    SETTINGS,
    beyond_memory,
    gpu_scope,
)
from experiments.suite.gpu_checks import TOLERANCE, judge_samples, judge_weights
from launchers.run.conclude import LaunchedRun
from ps_allreduce.errors import UserError
from ps_allreduce.point.cores import plan_gpus
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.layout import place_tasks
from ps_allreduce.point.models.trained import ImageModel
from ps_allreduce.point.resources import Device
from ps_allreduce.point.strategies import Single, SynchronousServers
from ps_allreduce.point.wire import Collective
from ps_allreduce.record.hosts import Gpu, GpuSample, HostFacts
from ps_allreduce.record.records import Status, TaskRecord
from ps_allreduce.record.variables import RunWeights, save_weights
from tests.experiments.conftest import Machine, run
from tests.fakes import (
    FakeLauncher,
    bad_run,
    fit,
    make_facts,
    make_host,
    make_record,
    make_sample,
    ok_run,
)

GIB = 2**30

OOM = "worker:0: out of memory on GPU 0 (no room for a tensor float[9]); use a smaller --batch"


T4 = Gpu(identity="", model="T4", memory_bytes=16 * GIB, driver="550.1", compute_capability="7.5")


def gpu(name: str, **changes: Any) -> Gpu:
    return replace(T4, identity=name, **changes)


def host_with(*gpus: Gpu, name: str = "n9", memory_bytes: int = 64 * GIB) -> HostFacts:
    return make_facts(name, gpus=gpus, memory_bytes=memory_bytes)


@dataclass(slots=True)
class GpuMachine(FakeLauncher):
    """A launcher on whose hosts everything works, but for what a test changes."""

    here: tuple[HostFacts, ...] = (host_with(gpu("GPU-a"), gpu("GPU-b")),)
    error: float = 1e-6
    change: Callable[[Experiment, LaunchedRun], LaunchedRun] = lambda _, launched: launched

    def launch(
        self, experiment: Experiment, *, weights: Path | None = None, **_: Any
    ) -> LaunchedRun:
        self.launched.append(experiment)
        self.on_launch(experiment)
        on_gpu = experiment.resources.device is Device.GPU
        if weights is not None:
            value = 1.0 + (self.error if on_gpu else 0.0)
            start, end = (np.full((2, 3), each, np.float32) for each in (0.0, value))
            save_weights(weights, RunWeights(initial=[start], final=[end]))
        return self.change(experiment, self._ran(experiment))

    def _ran(self, experiment: Experiment) -> LaunchedRun:
        if experiment.workload.batch_per_worker > 64:
            return replace(bad_run(Status.FAILED, OOM), hosts=self._hosts())
        placed = place_tasks(experiment, [facts.name for facts in self.here])
        offered = {facts.name: [one.identity for one in facts.gpus] for facts in self.here}
        visible = plan_gpus(experiment, placed, offered)
        tasks = tuple(
            TaskRecord(
                task=str(task),
                host=host,
                address=f"{host}:1",
                cores=(0,),
                gpus=visible[task].split(",")[0],
                pid=7,
            )
            for task, host in placed.items()
        )
        look = GpuSample(identity=tasks[0].gpus or "", utilisation=0.9, memory_bytes=GIB)
        samples = tuple(make_sample(float(second), gpus=(look,)) for second in range(9))
        uses_nccl = experiment.strategy.columns().get("collective") == Collective.NCCL
        log = "NCCL version 2.25.1+cuda12.5\n" if uses_nccl else ""
        run = ok_run(hosts=self._hosts(), tasks=tasks, samples=samples, log=log)
        return fit(run, experiment)

    def _hosts(self) -> tuple[Any, ...]:
        return tuple(make_host(facts.name, facts=facts) for facts in self.here)


@pytest.fixture
def gpus(launcher: FakeLauncher, machine: Machine, monkeypatch: pytest.MonkeyPatch) -> GpuMachine:
    made = GpuMachine()
    monkeypatch.setattr(surroundings, "launcher_of", lambda _: made)
    for name in SETTINGS:
        monkeypatch.setenv(name, "")  # so that it is put back
    return made


def checked(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, dict[str, str]]:
    """Exit status, and the verdict of every item by its name."""
    status = run("accept-gpu", *words)
    path = Path("results/accept-gpu/accept_gpu.json")
    items = json.loads(path.read_text())
    out = capsys.readouterr().out
    for item in items:
        assert f"[{item['verdict']}] {item['name']}: {item['detail']}" in out
    return status, {item["name"]: item["verdict"] for item in items}


ALL = (
    "driver and NVML",
    "trains: single",
    "trains: ps_async, 1 worker",
    "workers see the planned GPUs, servers none",
    "trains: ps_sync, 2 workers",
    "trains: allreduce over RING, 2 workers",
    "trains: no_communication, 2 workers",
    "trains: ps_async, 2 workers",
    "trains: allreduce over NCCL, 2 workers",
    "samples of GPUs are recorded",
    "want of memory is told as such",
)


def test_where_everything_works_everything_passes(
    gpus: GpuMachine, capsys: pytest.CaptureFixture[str]
) -> None:
    status, items = checked(capsys)
    assert (status, items) == (0, dict.fromkeys(ALL, "passed"))
    assert {name: os.environ[name] for name in SETTINGS} == SETTINGS
    trained = {point.strategy.kind for point in gpus.launched}
    assert trained == {"single", "no_communication", "ps_async", "ps_sync", "allreduce"}
    reference, *others = gpus.launched
    assert reference.resources.device is Device.CPU
    assert {point.resources.device for point in others} == {Device.GPU}
    small = [point for point in gpus.launched if point.workload.model == ImageModel()]
    assert {point.global_batch for point in small} == {16}


def test_every_call_records_one_more_run_of_each_point_and_leaves_no_weights(
    gpus: GpuMachine, capsys: pytest.CaptureFixture[str]
) -> None:
    assert [checked(capsys)[0] for _ in range(2)] == [0, 0]
    folder = Path("results/accept-gpu")
    assert len(gpus.launched) == 20
    for repetition in range(2):
        assert len(list(folder.glob(f"runs/*/{repetition}-0.json"))) == 10
    assert not (folder / "weights.npz").exists()


def test_without_a_gpu_that_is_said_in_a_sentence(
    gpus: GpuMachine, capsys: pytest.CaptureFixture[str]
) -> None:
    gpus.here = (host_with(),)
    assert run("accept-gpu") == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err == "Error: n9: there is no GPU that CUDA would show here.\n"
    assert len(gpus.launched) == 1


def test_hosts_that_cannot_have_gpus_are_refused_before_any_run(
    gpus: GpuMachine, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    no_gpus = UserError("no GPUs here")
    gpus.refuses = lambda point: no_gpus if point.resources.device is Device.GPU else None
    assert run("accept-gpu") == 2
    assert capsys.readouterr().err == "Error: no GPUs here\n"
    assert gpus.launched == []
    assert not (tmp_path / "results").exists()


def test_with_one_gpu_nothing_can_be_reduced(
    gpus: GpuMachine, capsys: pytest.CaptureFixture[str]
) -> None:
    gpus.here = (host_with(gpu("GPU-a")),)
    status, items = checked(capsys)
    assert status == 0
    assert items["trains: allreduce over RING and NCCL, 2 workers"] == "not possible here"
    assert items["trains: allreduce over RING, 1 workers"] == "passed"
    assert max(point.num_workers for point in gpus.launched) == 1


def test_two_hosts_have_a_worker_each(gpus: GpuMachine, capsys: pytest.CaptureFixture[str]) -> None:
    gpus.here = (host_with(gpu("GPU-a"), name="n1"), host_with(gpu("GPU-b"), name="n2"))
    gpus.facts = gpus.here
    status, items = checked(capsys, "--launcher", "slurm")
    assert (status, items) == (0, dict.fromkeys(ALL, "passed"))
    spreads = {point.spread.workers_per_host for point in gpus.launched if point.spread}
    assert spreads == {1}


def failed_items(capsys: pytest.CaptureFixture[str]) -> list[str]:
    """The names of those items of a checklist that failed, some at least."""
    status, items = checked(capsys)
    assert status == 1
    return [name for name, verdict in items.items() if verdict == "FAILED"]


def test_a_driver_that_tells_nothing_fails(
    gpus: GpuMachine, capsys: pytest.CaptureFixture[str]
) -> None:
    gpus.here = (host_with(gpu("0", driver="", memory_bytes=None), gpu("1")),)
    status, items = checked(capsys)
    assert (status, items["driver and NVML"]) == (1, "FAILED")
    assert items["want of memory is told as such"] == "not possible here"


def test_other_weights_fail(gpus: GpuMachine, capsys: pytest.CaptureFixture[str]) -> None:
    gpus.error = 2 * TOLERANCE
    failed = failed_items(capsys)
    assert len(failed) == 5
    assert all(name.startswith("trains: ") for name in failed)
    assert "trains: no_communication, 2 workers" not in failed


@pytest.mark.parametrize(
    ("index", "seen"),
    [
        pytest.param(0, "GPU-a", id="a server sees a GPU"),
        pytest.param(3, "GPU-b", id="the chief sees a GPU"),
        pytest.param(1, "GPU-c", id="a worker sees an unknown one"),
        pytest.param(1, "", id="a worker sees none"),
        pytest.param(1, None, id="a worker did not get so far"),
        pytest.param(2, "GPU-a", id="two workers see the same"),
    ],
)
def test_gpus_that_are_not_as_planned_fail(
    index: int, seen: str | None, gpus: GpuMachine, capsys: pytest.CaptureFixture[str]
) -> None:
    def change(experiment: Experiment, launched: LaunchedRun) -> LaunchedRun:
        if not isinstance(experiment.strategy, SynchronousServers):
            return launched
        tasks = list(launched.tasks)
        tasks[index] = replace(tasks[index], gpus=seen)
        return replace(launched, tasks=tuple(tasks))

    gpus.change = change
    assert failed_items(capsys) == ["workers see the planned GPUs, servers none"]


def test_runs_that_fail_are_failed_items_with_their_reason_and_log(
    gpus: GpuMachine, capsys: pytest.CaptureFixture[str]
) -> None:
    gpus.change = lambda point, launched: (
        bad_run(Status.FAILED, "chief:0: no luck")
        if isinstance(point.strategy, SynchronousServers)
        else launched
    )
    assert run("accept-gpu") == 1
    out = capsys.readouterr().out
    assert "[FAILED] trains: ps_sync, 2 workers: failed: chief:0: no luck" in out
    assert "9 passed, 2 FAILED. Please send this to the project" in out
    (log,) = [line.strip() for line in out.splitlines() if line.endswith(".log")]
    assert Path(log).exists()


def test_a_gpu_that_is_never_seen_at_work_fails(
    gpus: GpuMachine, capsys: pytest.CaptureFixture[str]
) -> None:
    def idle(_: Experiment, launched: LaunchedRun) -> LaunchedRun:
        look = GpuSample(identity="GPU-a", utilisation=0.0)
        samples = tuple(make_sample(float(second), gpus=(look,)) for second in range(9))
        return replace(launched, samples=samples)

    gpus.change = idle
    assert failed_items(capsys) == ["samples of GPUs are recorded"]


def test_details_claim_nothing_that_no_run_has_told() -> None:
    item = judge_weights("single", make_record(), (), (np.ones(2, np.float32),))
    assert (item.verdict, item.detail) == ("FAILED", "it left no weights")
    look = GpuSample(identity="GPU-a", memory_bytes=GIB)
    (task, *_) = make_record().tasks
    on_gpu = make_record(
        tasks=(replace(task, gpus="GPU-a"),), samples=(make_sample(1.0, gpus=(look,)),)
    )
    seen = judge_samples(on_gpu)
    assert seen.detail.startswith("1 sample, 0 known to be idle: utilisation not told")


@pytest.mark.parametrize(
    ("run_instead", "verdict"),
    [
        (bad_run(Status.FAILED, "worker:0: out of memory; use a smaller --batch"), "passed"),
        (bad_run(Status.FAILED, "worker:0: out of memory on the host (no room)"), "FAILED"),
        (bad_run(Status.FAILED, "worker:0 was killed by SIGKILL"), "FAILED"),
        (ok_run(), "FAILED"),
    ],
)
def test_want_of_memory_must_be_told_as_such(
    run_instead: LaunchedRun,
    verdict: str,
    gpus: GpuMachine,
    capsys: pytest.CaptureFixture[str],
) -> None:
    gpus.change = lambda point, launched: (
        run_instead if point.workload.batch_per_worker > 64 else launched
    )
    assert checked(capsys)[1]["want of memory is told as such"] == verdict


def beyond(memory_bytes: int | None, host_bytes: int = 512 * GIB) -> int | None:
    facts = host_with(gpu("GPU-a", memory_bytes=memory_bytes), memory_bytes=host_bytes)
    scope = gpu_scope(Experiment(strategy=Single()), [facts], 8, lambda _: ())
    point = beyond_memory(scope, facts)
    return None if point is None else point.workload.batch_per_worker


def test_the_batch_that_does_not_fit_follows_the_memory() -> None:
    assert beyond(None) is None
    for memory in (16 * GIB, 80 * GIB):
        batch = beyond(memory)
        assert batch is not None
        assert batch * BYTES_PER_IMAGE > 1.4 * memory
    assert beyond(1000 * GIB) == MOST_IMAGES
    assert beyond(80 * GIB, host_bytes=4 * GIB) is None


def test_nccl_has_to_say_that_it_is_there(
    gpus: GpuMachine, capsys: pytest.CaptureFixture[str]
) -> None:
    gpus.change = lambda _, launched: replace(launched, log="Enabled NCCL, but no GPUs\n")
    assert failed_items(capsys) == ["trains: allreduce over NCCL, 2 workers"]


@pytest.mark.parametrize(
    ("status", "ended", "said"),
    [
        (Status.INTERRUPTED, 130, "Interrupted."),
        (Status.FAILED, 1, "the reference on processors cannot be trained: worker:0: no luck"),
    ],
)
def test_without_a_reference_the_checklist_ends(
    status: Status, ended: int, said: str, gpus: GpuMachine, capsys: pytest.CaptureFixture[str]
) -> None:
    gpus.change = lambda _, launched: replace(
        bad_run(status, "worker:0: no luck"), hosts=launched.hosts
    )
    assert run("accept-gpu") == ended
    assert said in capsys.readouterr().err
    assert len(gpus.launched) == 1
