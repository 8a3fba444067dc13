"""All tasks on this machine, over loopback.

Decides ports, cores and environment of every task, watches the run against its deadline, and makes
sure that nothing survives it.  How a task trains is not known here.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Self

from launchers.conclude import Prepared, conclude, failure_reason, result_path
from launchers.fork_server import ForkServerClient
from launchers.layout import cluster_of, drivers_of, plan_cores, tasks_of
from launchers.login_node import is_login_node
from launchers.ports import HeldPorts
from launchers.processes import FORK_SERVER
from launchers.protocol import LaunchedRun
from launchers.run_monitor import RunMonitor
from ps_allreduce.cluster import TaskId, TaskType, TfConfig
from ps_allreduce.errors import LaunchError, UserError
from ps_allreduce.experiment import Device, Experiment, Workload
from ps_allreduce.placement import VariableSpec
from ps_allreduce.records import Status
from ps_allreduce.runner.messages import (
    ConvertImages,
    DescribeModel,
    EndAll,
    Event,
    OverheadResult,
    PrepareInput,
    StartTask,
)
from ps_allreduce.serialization import from_json

LOOPBACK = "127.0.0.1"

SCRATCH_PREFIX = "ps-allreduce-"

JOB_DEADLINE_S = 300.0

CONVERT_DEADLINE_S = 24 * 3600.0

#: How long after a first failure other tasks may still tell the better reason.
GRACE_S = 0.5

REAP_DEADLINE_S = 20.0

#: What a task's process must know before TensorFlow looks around.
TASK_ENVIRONMENT = {
    "TF_GRPC_REUSE_PORT": "true",
    "GRPC_FAIL_FAST": "use_caller",
    "CUDA_VISIBLE_DEVICES": "",
}

PORT_ATTEMPTS = 3

PORT_TROUBLE = ("Could not start gRPC server", "Address already in use")


class LocalLauncher:
    """Runs experiments on this machine, one at a time."""

    def __init__(
        self,
        data_dir: Path,
        *,
        allow_login_node: bool = False,
        fork_server: Sequence[str] = FORK_SERVER,
    ) -> None:
        self._data_dir = data_dir
        self._allow_login_node = allow_login_node
        self._words = fork_server
        self._client: ForkServerClient | None = None
        self._described: dict[tuple[str, int, int], tuple[VariableSpec, ...]] = {}
        self._scratch = Path()

    def __enter__(self) -> Self:
        if not self._allow_login_node and is_login_node(os.environ):
            raise UserError(
                "a Slurm controller answers and no job is active: this looks like a login node, "
                "where training is not welcome. Run the same command inside salloc or sbatch, or "
                "overrule with --allow-login-node."
            )
        remove_left_overs(Path(tempfile.gettempdir()))
        self._scratch = Path(tempfile.mkdtemp(prefix=f"{SCRATCH_PREFIX}{os.getpid()}-"))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None
        shutil.rmtree(self._scratch, ignore_errors=True)

    def check(self, experiment: Experiment) -> None:
        """Refuse what does not fit on this machine."""
        if experiment.resources.device is not Device.CPU:
            raise UserError("the launcher local runs on CPUs only so far.")
        plan_cores(experiment, _available_cores())

    def is_oversubscribed(self, experiment: Experiment) -> bool:
        """Whether tasks that compute share cores."""
        return plan_cores(experiment, _available_cores()).oversubscribed

    def total_cores(self, experiment: Experiment) -> int:
        """Cores that all tasks have together."""
        return plan_cores(experiment, _available_cores()).total

    def describe(self, workload: Workload) -> tuple[VariableSpec, ...]:
        """The model's variables in creation order; built once per model, size and classes."""
        key = (workload.model, workload.image_size, workload.num_classes)
        if key not in self._described:
            request = DescribeModel(workload=workload, log=str(self._scratch / "describe.log"))
            self._described[key] = self._server().ask(request, JOB_DEADLINE_S).variables
        return self._described[key]

    def prepare(self, workload: Workload) -> None:
        """Make and check the input files."""
        request = PrepareInput(
            workload=workload,
            data_dir=str(self._data_dir),
            log=str(self._scratch / "prepare.log"),
        )
        self._server().ask(request, JOB_DEADLINE_S)

    def convert(
        self, source: Path, target: Path, progress: Callable[[int, int], None]
    ) -> Mapping[str, int]:
        """Write the images below `source/<class>/` as TFRecord files into `target`.

        Args:
            progress: told how many images are done, of how many.

        Returns:
            The number of images per class.

        Raises:
            UserError: there are no images, or one cannot be read.
        """

        def hear(event: Event) -> None:
            if event.event == "progress":
                progress(event.counts["done"], event.counts["total"])

        log = str(self._scratch / "convert.log")
        request = ConvertImages(source=str(source), target=str(target), log=log)
        return self._server().ask(request, CONVERT_DEADLINE_S, hear).counts

    def _server(self) -> ForkServerClient:
        if self._client is None:
            self._client = ForkServerClient(self._scratch / "fork_server.log", self._words)
        return self._client

    def launch(
        self,
        experiment: Experiment,
        *,
        progress: Callable[[str], None],
        weights: Path | None = None,
    ) -> LaunchedRun:
        """Run one experiment; a port that was taken in spite of everything is tried again."""
        for attempt in range(PORT_ATTEMPTS):
            run = self._launch_once(experiment, progress, weights)
            if not any(trouble in run.reason for trouble in PORT_TROUBLE):
                break
            progress(f"port taken, attempt {attempt + 2}")
        return run

    def measure_recording(self, experiment: Experiment, rounds: int) -> OverheadResult:
        """Compare recorded with bare steps, in so many interleaved pairs of stretches.

        Raises:
            LaunchError: the run failed.
        """
        with self._tasks(experiment, recording_rounds=rounds) as prepared:
            status, monitor, _ = self._run_tasks(experiment, prepared, lambda _: None)
            if status is not Status.OK:
                raise LaunchError(failure_reason(experiment, monitor, status))
            path = Path(f"{result_path(prepared.scratch, drivers_of(experiment)[0])}.json")
            return from_json(OverheadResult, json.loads(path.read_text(encoding="utf-8")))

    def _launch_once(
        self, experiment: Experiment, progress: Callable[[str], None], weights: Path | None
    ) -> LaunchedRun:
        with self._tasks(experiment, weights=weights) as prepared:
            status, monitor, launched_at = self._run_tasks(experiment, prepared, progress)
            return conclude(experiment, prepared, monitor, status, launched_at)

    @contextmanager
    def _tasks(
        self, experiment: Experiment, *, weights: Path | None = None, recording_rounds: int = 0
    ) -> Iterator[Prepared]:
        """Ports and a scratch folder, for as long as a run lasts."""
        scratch = Path(tempfile.mkdtemp(dir=self._scratch))
        try:
            with HeldPorts(len(tasks_of(experiment))) as ports:
                prepared = self._prepare_tasks(experiment, ports.numbers, scratch, weights)
                rounds = [
                    replace(request, recording_rounds=recording_rounds)
                    for request in prepared.requests
                ]
                yield replace(prepared, requests=rounds)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)

    def _run_tasks(
        self, experiment: Experiment, prepared: Prepared, progress: Callable[[str], None]
    ) -> tuple[Status, RunMonitor, float]:
        """Start all tasks and follow them to the end; none is left."""
        monitor = RunMonitor(drivers_of(experiment))
        server = self._server()
        launched_at = time.time()
        status = Status.INTERRUPTED
        try:
            for request in prepared.requests:
                server.send(request)
            status = self._watch(server, monitor, experiment, progress)
        except LaunchError as error:
            # The fork server has died, and its tasks with it; the next run starts another.
            self._client = None
            server.close()
            monitor.lost_contact = str(error).splitlines()[0]
            status = Status.FAILED
        except KeyboardInterrupt:
            pass  # the run is recorded as interrupted, and the sweep ends
        finally:
            if self._client is not None:
                self._end_tasks(server, monitor)
        return status, monitor, launched_at

    def _prepare_tasks(
        self, experiment: Experiment, ports: Sequence[int], scratch: Path, weights: Path | None
    ) -> Prepared:
        tasks = tasks_of(experiment)
        cores = plan_cores(experiment, _available_cores())
        addresses = {task: f"{LOOPBACK}:{port}" for task, port in zip(tasks, ports, strict=True)}
        cluster = cluster_of(tasks, addresses)
        alone = experiment.traits.max_workers == 1
        first_driver = drivers_of(experiment)[0]
        requests = [
            StartTask(
                task=str(task),
                tf_config="" if alone else TfConfig(cluster, task).render(),
                experiment=experiment,
                cores=cores.cores[task],
                threads=_threads(experiment, task),
                environment=TASK_ENVIRONMENT,
                data_dir=str(self._data_dir),
                log=str(scratch / f"{task.type}-{task.index}.log"),
                result=str(result_path(scratch, task)),
                weights=str(weights) if weights is not None and task == first_driver else None,
            )
            for task in tasks
        ]
        return Prepared(requests, addresses, cores, scratch)

    def _watch(
        self,
        server: ForkServerClient,
        monitor: RunMonitor,
        experiment: Experiment,
        progress: Callable[[str], None],
    ) -> Status:
        """Follow the run until it is complete, fails, or its time is up."""
        deadline = time.monotonic() + experiment.profile.deadline_s
        while (left := deadline - time.monotonic()) > 0:
            monitor.take(server.receive(min(left, 0.5)))
            progress(monitor.stage)
            if monitor.is_complete:
                return Status.OK
            if monitor.has_failed:
                self._listen(server, monitor, GRACE_S)
                return Status.FAILED
        return Status.TIMED_OUT

    def _listen(self, server: ForkServerClient, monitor: RunMonitor, seconds: float) -> None:
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            monitor.take(server.receive(left))

    def _end_tasks(self, server: ForkServerClient, monitor: RunMonitor) -> None:
        """Kill what is left, and wait until it is gone."""
        failed_before = dict(monitor.exited)
        server.send(EndAll())
        deadline = time.monotonic() + REAP_DEADLINE_S
        while monitor.num_alive and (left := deadline - time.monotonic()) > 0:
            monitor.take(server.receive(left))
        # What we killed ourselves is no failure, but its processor time and memory count.
        monitor.ended_by_us.update(set(monitor.exited) - set(failed_before))


def remove_left_overs(folder: Path) -> None:
    """Remove the scratch folders of launchers that were killed: ours, and of no living process."""
    for path in folder.glob(f"{SCRATCH_PREFIX}*-*"):
        owner = path.name.removeprefix(SCRATCH_PREFIX).split("-")[0]
        with suppress(OSError):
            mine = path.stat().st_uid == os.getuid()
            if mine and owner.isdecimal() and not Path("/proc", owner).exists():
                shutil.rmtree(path, ignore_errors=True)


def _available_cores() -> list[int]:
    return sorted(os.sched_getaffinity(0))


def _threads(experiment: Experiment, task: TaskId) -> int:
    return 1 if task.type is TaskType.PS else experiment.resources.threads_per_worker
