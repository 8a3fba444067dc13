"""A forked process with a job: how it leaves its parent, and what it reports.

Decides what a child inherits and how an error becomes a sentence.  `runner.jobs` decides what the
job is, `server` when children are forked and ended.
"""

from __future__ import annotations

import ctypes
import os
import signal
import time
from pathlib import Path
from typing import Any

from ps_allreduce.errors import InputDataError, SuiteError, UserError
from ps_allreduce.fork_server.messages import Event, encode
from ps_allreduce.tf_internals.texts import essence

PR_SET_PDEATHSIG = 1


class Reporter:
    """The `Report` of a child: it writes to a pipe that the parent relays to the launcher."""

    def __init__(self, name: str, descriptor: int) -> None:
        self._name = name
        self._descriptor = descriptor

    def __call__(self, event: str, **details: Any) -> None:
        """Send one event with the present time."""
        message = Event(name=self._name, event=event, time=time.time(), **details)
        line = encode(message)
        while line:
            line = line[os.write(self._descriptor, line) :]


def detach(parent: int, log: Path) -> None:
    """Leave the parent's process group, die with the parent, and write to the log."""
    os.setsid()
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((nothing, 0), (output, 1), (output, 2)):
        os.dup2(source, target)


def report_failure(reporter: Reporter, error: BaseException) -> None:
    """Report in a sentence why the job could not be done."""
    understood = isinstance(error, SuiteError)
    text = str(error) if understood else f"{type(error).__name__}: {essence(str(error))}"
    mistake = isinstance(error, UserError | InputDataError)
    reporter("failed", text=text, user_error=mistake)
