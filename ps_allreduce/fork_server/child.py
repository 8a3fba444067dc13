"""A forked process with a job: how it leaves its parent, what it reports, and why it failed.

Decides what a child inherits and how an error becomes a sentence.  Want of memory has a sentence of
its own: memory usually limits the batch, and errors seldom say so.  `runner.forked_jobs` decides
what the job is, `server` when children are forked and ended.
"""

from __future__ import annotations

import os
import re
import resource
import signal
import socket
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import psutil

from ps_allreduce.errors import SHORTAGES, HostFault, InputDataError, SuiteError, UserError
from ps_allreduce.fork_server.line import send_all
from ps_allreduce.fork_server.messages import Event, encode
from ps_allreduce.inspection.questions import Answer
from ps_allreduce.process import ENDING, signal_when_parent_ends
from ps_allreduce.tf_texts import ALLOCATOR, OUT_OF_MEMORY, TENSOR, essence

#: What a user can mend; where it happened in the code tells them nothing.
MISTAKES = (UserError, InputDataError)

ADVICE = "use a smaller --batch-per-worker"

#: How a program ends for which the system had no address space, if it did not look.
CRASHES = (signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT)


@dataclass(frozen=True, slots=True)
class Child:
    """A forked process, as its parent knows it; `reports` is this end of its pipe."""

    name: str
    pid: int
    reports: int
    process: psutil.Process


@dataclass(frozen=True, slots=True)
class Reporter:
    """The `Report` of a child: it writes to a pipe that the parent relays to the launcher."""

    name: str
    descriptor: int

    def __call__(self, told: str | Answer, **details: Any) -> None:
        """Send an answer, or an event and its details, with the present time."""
        sent: Any = {"name": self.name, "time": time.time()}
        message = (
            replace(told, **sent)
            if isinstance(told, Answer)
            else Event(event=told, **sent, **details)
        )
        send_all(self.descriptor, encode(message))


def end_with_parent(parent: int) -> None:
    """Have this process, a fork of another, killed when that one ends."""
    signal_when_parent_ends(signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def detach(parent: int, log: Path) -> None:
    """Leave the parent's process group, die with the parent, and write to the log."""
    os.setsid()
    end_with_parent(parent)
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGCHLD, signal.SIGINT, *ENDING):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((nothing, 0), (output, 1), (output, 2)):
        os.dup2(source, target)


def keep_from_forks(descriptor: int) -> None:
    """Have processes that this one forks write elsewhere what is meant for a descriptor."""

    def close() -> None:
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, descriptor)  # its number stays taken: they may fork in turn
        os.close(nothing)

    os.register_at_fork(after_in_child=close)


def report_failure(reporter: Reporter, error: BaseException) -> None:
    """Report in a sentence why the job could not be done."""
    understood = isinstance(error, SuiteError)
    text = str(error) if understood else f"{type(error).__name__}: {essence(str(error))}"
    mistake = isinstance(error, MISTAKES)
    short = isinstance(error, OSError) and error.errno in SHORTAGES
    fault = short or isinstance(error, HostFault)
    reporter("failed", text=text, user_error=mistake, host_fault=fault)


def log_failure(error: BaseException) -> None:
    """Write to the log where it happened; of a user's mistake only the sentence."""
    if isinstance(error, MISTAKES):
        print(error, file=sys.stderr)
    else:
        traceback.print_exception(error)


def explain_out_of_memory(text: str, task: str) -> str:
    """The sentence for an error that means want of memory; empty for any other.

    Args:
        text: of the error.
        task: in which it was raised; another task may be the one without memory.
    """
    if not OUT_OF_MEMORY.search(text):
        return ""
    tensor = TENSOR.search(text)
    wanted = f" (no room for a tensor {tensor[2]}{tensor[1]})" if tensor else ""
    return f"out of memory{_where(text, task)}{wanted}; {ADVICE}"


def explain_end(number: int, kernel: KernelWatch) -> str:
    """The sentence for a child that lacked memory or address space; empty if nothing says so.

    Args:
        number: of the signal that ended it.
    """
    if number == signal.SIGKILL and kernel.has_killed:
        host = socket.gethostname()
        return f"out of memory on host {host}: the kernel ended it; {ADVICE}"
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if number not in CRASHES or limit == resource.RLIM_INFINITY:
        return ""
    return (
        f"it crashed ({signal.Signals(number).name}) where a process may have {limit / 1e9:.1f} GB "
        "of address space: raise the limit (ulimit -v), as TensorFlow maps more than it uses"
    )


def _where(text: str, task: str) -> str:
    place = ALLOCATOR.search(text)
    if place is None:
        return ""
    job, index, kind, number = place.groups()
    device = f"GPU {number}" if kind == "GPU" else "the host"
    other = f"{job}:{index}"
    return f" on {device}" + ("" if job in (None, "localhost") or other == task else f" of {other}")


@dataclass(slots=True)
class KernelWatch:
    """Whether the kernel has ended processes for want of memory since the last look."""

    root: Path = Path("/")
    before: int = 0

    def begin(self) -> None:
        """Look, and remember."""
        self.before = count_kills(self.root)

    @property
    def has_killed(self) -> bool:
        """It has ended one of our processes since; of this host's if control groups do not tell."""
        return count_kills(self.root) > self.before


def count_kills(root: Path) -> int:
    """How many processes the kernel has ended: of our control group, else of the host."""
    for path in _counters(root):
        try:
            text = path.read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue
        if count := re.search(r"^oom_kill (\d+)$", text, re.MULTILINE):
            return int(count[1])
    return 0


def _counters(root: Path) -> Iterator[Path]:
    """Files that count them: of our control groups, of either version, then of the host."""
    try:
        lines = (root / "proc/self/cgroup").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    groups = {kind: path.lstrip("/") for _, kind, path in (line.split(":", 2) for line in lines)}
    for kind, path in groups.items():
        if kind == "":
            yield root / "sys/fs/cgroup" / path / "memory.events"
        elif "memory" in kind.split(","):
            yield root / "sys/fs/cgroup/memory" / path / "memory.oom_control"
    yield root / "proc/vmstat"


#: Keras tries to import these; no task uses them.
UNUSED_BY_TASKS = ("matplotlib", "pandas", "sklearn")


@contextmanager
def left_out(*names: str) -> Iterator[None]:
    """Let imports of these packages fail meanwhile, unless they are imported already.

    Keras imports scikit-learn for its wrappers and Matplotlib for its galleries if they are
    installed, and the analysis needs them installed.  That is a third of the time and of the files
    of `import tensorflow`, on every host and in every job step.  Keras works without them.
    """
    # With None as its module, an import fails: https://docs.python.org/3/reference/import.html
    absent: dict[str, Any] = {name: None for name in names if name not in sys.modules}
    sys.modules.update(absent)
    try:
        yield
    finally:
        for name in absent:
            del sys.modules[name]
