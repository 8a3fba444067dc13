"""Tasks of this process's own launchers, found and killed by their names."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

import psutil


def pid_of(task: str) -> int:
    """The task's process: the one whose log is open under the task's name."""
    name = task.replace(":", "-") + ".log"
    for process in psutil.Process().children(recursive=True):
        target = os.readlink(f"/proc/{process.pid}/fd/1")
        if target.endswith(f"/{name}"):
            return process.pid
    raise AssertionError(f"no process of {task}")


def kill_when_measured(task: str) -> Callable[[str], None]:
    """A progress callback that kills a task once, as soon as steps are measured."""
    killed: list[str] = []

    def progress(stage: str) -> None:
        if stage == "measured" and not killed:
            killed.append(task)
            os.kill(pid_of(task), signal.SIGKILL)

    return progress
