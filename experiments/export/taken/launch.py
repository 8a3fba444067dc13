"""Start the tasks of a training on this host, and end them together.

    python launch.py [--hosts A,B --here A] [--port P] [-- arguments of train.py]

Every host runs this program once, with the same list of hosts.  `tasks.json` says which tasks
there are, on which host of the list each belongs, and which of the host's cores it gets.  Tasks
learn from TF_CONFIG who they are.  The first one that fails ends all others.  Ctrl-C or SIGTERM
lets the training save a checkpoint first; a second one ends it at once.  One training at a time
runs in this folder.  Needs Python, nothing else.

Exit status: 0 the training is done, 1 a task failed, 2 a mistake in the request, 143 interrupted
and saved, 137 ended at once.
"""

from __future__ import annotations

import argparse
import ctypes
import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import TextIO

HERE = Path(__file__).resolve().parent
LOOPBACK = "127.0.0.1"

#: Ports of the tasks follow one another from here where there are several hosts.
FIRST_PORT = 23456

#: Proxies would be obeyed even between the tasks.
UNWANTED = ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "grpc_proxy", "TF_CONFIG")

#: Tasks that are asked to end may save a checkpoint for so many seconds.
SAVING_S = 110.0

#: After a task has failed, others get so many seconds to tell why they end too.
LAST_WORDS_S = 2.0

#: Tasks are asked again after so many seconds: while they start, TensorFlow swallows the signal.
REMINDER_S = 1.0

INTERRUPTED = 143
ENDED_AT_ONCE = 137

PR_SET_PDEATHSIG = 1


@dataclass(frozen=True)
class PlannedTask:
    """One process; `host` counts along the list of hosts, `cores` along those of its host."""

    kind: str
    index: int
    host: int
    cores: tuple[int, ...]
    gpu: int | None
    drives: bool

    @property
    def name(self) -> str:
        """For instance `worker-0`."""
        return f"{self.kind}-{self.index}"


@dataclass(frozen=True)
class TaskPlan:
    """All tasks, and what each has in its environment."""

    tasks: tuple[PlannedTask, ...]
    environment: dict[str, str]

    @property
    def num_hosts(self) -> int:
        """How many hosts the tasks need."""
        return max(task.host for task in self.tasks) + 1


def read_plan(path: Path) -> TaskPlan:
    """Read `tasks.json`."""
    content = json.loads(path.read_text(encoding="utf-8"))
    tasks = [PlannedTask(**{**item, "cores": tuple(item["cores"])}) for item in content["tasks"]]
    return TaskPlan(tuple(tasks), content["environment"])


def tf_config(plan: TaskPlan, task: PlannedTask, hosts: Sequence[str], ports: Sequence[int]) -> str:
    """Who a task is, and where all others are."""
    cluster: dict[str, list[str]] = {}
    for each, port in zip(plan.tasks, ports, strict=True):
        cluster.setdefault(each.kind, []).append(f"{hosts[each.host]}:{port}")
    me = {"type": task.kind, "index": task.index}
    return json.dumps({"cluster": cluster, "task": me})


def hold_port() -> socket.socket:
    """Bind a free port of this host, which a task will share.

    Nobody else is given it, so two trainings that begin together do not meet.
    """
    held = socket.socket()
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    held.bind(("", 0))
    return held


def hold_folder(number: int) -> TextIO | None:
    """Keep other trainings out of this folder while the file is open; None: one is there.

    Args:
        number: of this host; hosts may share the folder.
    """
    lock = (HERE / "logs" / f"host-{number}.lock").open("w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.close()
        return None
    return lock


def start(
    plan: TaskPlan, task: PlannedTask, place: dict[str, str], words: Sequence[str]
) -> subprocess.Popen[bytes]:
    """Start a task on its cores; what the first driver prints is read here, all else in `logs`.

    Args:
        place: what the environment says about the task's place among the others.
    """
    available = sorted(os.sched_getaffinity(0))
    enough = max(task.cores) < len(available)
    cores = [available[position] for position in task.cores] if enough else available
    library = ctypes.CDLL(None)

    def before() -> None:
        os.sched_setaffinity(0, cores)
        library.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)

    kept = {name: value for name, value in os.environ.items() if name not in UNWANTED}
    own = place if len(plan.tasks) > 1 else {}
    with log_of(task).open("wb") as log:
        return subprocess.Popen(
            [sys.executable, str(HERE / "train.py"), *words],
            env={**kept, **plan.environment, **visible_gpus(task), **own},
            stdin=subprocess.DEVNULL,
            stdout=None if is_first(task) else log,
            stderr=log,
            start_new_session=True,
            preexec_fn=before,
        )


def is_first(task: PlannedTask) -> bool:
    """Its words are what a user wants to read."""
    return task.drives and task.index == 0


def log_of(task: PlannedTask) -> Path:
    """Where a task writes, and TensorFlow for the first one."""
    return HERE / "logs" / f"{task.name}.log"


def visible_gpus(task: PlannedTask) -> dict[str, str]:
    """A worker sees one of the GPUs that this program sees; other tasks see none."""
    if task.gpu is None:
        return {"CUDA_VISIBLE_DEVICES": ""}
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    mine = visible.split(",")[task.gpu] if visible else str(task.gpu)
    return {"CUDA_VISIBLE_DEVICES": mine, "TF_FORCE_GPU_ALLOW_GROWTH": "true"}


class RunningTasks:
    """The processes on this host."""

    def __init__(self) -> None:
        self.running: dict[PlannedTask, subprocess.Popen[bytes]] = {}
        self.asked_to_end = 0
        self.deadline = float("inf")

    def ask_to_end(self, *_: int | FrameType | None) -> None:
        """Let them save a checkpoint; at the second time, end them."""
        self.asked_to_end += 1
        if self.asked_to_end > 1:
            self.kill()
            return
        self.deadline = time.monotonic() + SAVING_S
        if any(is_first(task) for task in self.running):
            print("launch.py: a checkpoint is saved, then all ends. Again: at once.", flush=True)

    def remind(self) -> None:
        """Tell tasks that they shall end."""
        for process in self.running.values():
            if process.poll() is None:
                process.terminate()

    def kill(self) -> None:
        """End all that is left, and what it started."""
        for process in self.running.values():
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()

    def follow(self) -> int:
        """Wait for the end, and return the exit status."""
        reminder = 0.0
        while True:
            if time.monotonic() > self.deadline:
                self.kill()
            if self.asked_to_end and time.monotonic() > reminder:
                self.remind()
                reminder = time.monotonic() + REMINDER_S
            statuses = {task: process.poll() for task, process in self.running.items()}
            failed = [task for task, status in statuses.items() if status not in (None, 0)]
            if failed:
                return self._explain(failed[0])
            drivers = [status for task, status in statuses.items() if task.drives]
            if None not in (drivers or statuses.values()):
                return 0
            time.sleep(0.05)

    def _explain(self, task: PlannedTask) -> int:
        """Say which task failed, and its last words."""
        status = self.running[task].returncode
        if self.asked_to_end:
            self._wait(60.0)
            return INTERRUPTED if self.asked_to_end == 1 else ENDED_AT_ONCE
        self._wait(LAST_WORDS_S)
        print(f"launch.py: {task.name} ended with status {status}. All others end.", flush=True)
        log = log_of(task)
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
        print("".join(f"  {line}\n" for line in lines[-15:]), end="")
        print(f"The whole log: {log}", flush=True)
        return 1

    def _wait(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end and any(p.poll() is None for p in self.running.values()):
            time.sleep(0.05)


def read_arguments(words: Sequence[str] | None = None) -> argparse.Namespace:
    """What was typed."""
    about, *_ = (__doc__ or "").split("\n")
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--hosts", default=LOOPBACK, help="names or addresses, with commas")
    parser.add_argument(
        "--here", help="which of them this host is; default: what Slurm says, or the first"
    )
    parser.add_argument("--port", type=int, default=0, help="of the first task; the rest follow")
    parser.add_argument("--end-with-input", action="store_true", help="end when input is closed")
    parser.add_argument("words", nargs="*", metavar="-- ARGUMENT", help="for train.py")
    return parser.parse_args(words)


def main() -> int:
    """Start the tasks of this host and wait for their end."""
    asked, plan, tasks = read_arguments(), read_plan(HERE / "tasks.json"), RunningTasks()
    hosts = asked.hosts.split(",")
    name = os.environ.get("SLURMD_NODENAME", "")
    here = asked.here or (name if name in hosts else hosts[0])
    if here not in hosts or len(hosts) < plan.num_hosts:
        print(f"launch.py: {plan.num_hosts} hosts are needed, among them {here}; got {hosts}.")
        return 2
    (HERE / "logs").mkdir(exist_ok=True)
    lock = hold_folder(hosts.index(here))
    if lock is None:
        print(f"launch.py: a training runs in {HERE} already: wait, or copy the folder.")
        return 2
    is_told = asked.port or len(hosts) > 1
    held = [] if is_told else [hold_port() for _ in plan.tasks]
    first = asked.port or FIRST_PORT
    ports = [each.getsockname()[1] for each in held] or range(first, first + len(plan.tasks))
    # A port that is told and taken is an error: tasks would join another training's.
    shares = {"TF_GRPC_REUSE_PORT": "true" if held else "false"}
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, tasks.ask_to_end)
    try:
        for task in plan.tasks:
            if task.host == hosts.index(here):
                place = {"TF_CONFIG": tf_config(plan, task, hosts, ports), **shares}
                tasks.running[task] = start(plan, task, place, asked.words)
        if asked.end_with_input:
            threading.Thread(target=end_with_input, args=[tasks], daemon=True).start()
        return tasks.follow() if tasks.running else 0
    finally:
        tasks.kill()


def end_with_input(tasks: RunningTasks) -> None:
    """End when a line asks for it, or when whoever started this program is gone."""
    for _ in sys.stdin:
        tasks.ask_to_end()
    if not tasks.asked_to_end:
        tasks.ask_to_end()


if __name__ == "__main__":
    sys.exit(main())
