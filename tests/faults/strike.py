"""Carry out one fault on the living processes and the folders of a sweep.

Decides who the victim is.  A fault whose victim is not there yet waits for it.
"""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import psutil

from tests.faults.ground import NETWORK_WORDS, SERVER_WORDS, Ground
from tests.faults.plan import Fault, Target, Verb

T = TypeVar("T")

#: Bytes: a thread's stack maps 8 MB and more.
MOST_SPACE = 1 << 28

SIGNALS = {
    Verb.KILL: signal.SIGKILL,
    Verb.SIGINT: signal.SIGINT,
    Verb.SIGTERM: signal.SIGTERM,
    Verb.SIGHUP: signal.SIGHUP,
    Verb.STOP: signal.SIGSTOP,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Struck:
    """A fault that was carried out.

    Attributes:
        victim: in words.
        deleted: a file or folder.
        undo: ends the fault.
    """

    victim: str
    deleted: tuple[Path, ...] = ()
    undo: Callable[[], None] = lambda: None


def strike(fault: Fault, suite: psutil.Process, ground: Ground) -> Struck | None:
    """Carry out a fault; None if its victim is not there."""
    try:
        match fault.verb:
            case Verb.FILL:
                return _fill(fault.target, ground)
            case Verb.DELETE:
                return _delete(fault, ground)
            case Verb.FEW_HANDLES:
                return _take_handles(fault, suite)
            case Verb.LITTLE_SPACE:
                return _take_space(fault, suite)
            case _:
                return _signal(fault, suite)
    except (psutil.NoSuchProcess, ProcessLookupError, FileNotFoundError):
        return None  # it went away meanwhile


def picked(candidates: Sequence[T], pick: float) -> T | None:
    """One of them, None of none; `pick` says which, from 0 to 1."""
    return candidates[int(pick * len(candidates))] if candidates else None


def _signal(fault: Fault, suite: psutil.Process) -> Struck | None:
    victim = picked(_candidates(fault.target, suite), fault.pick)
    if victim is None:
        return None
    described = _describe(victim, suite)
    victim.send_signal(SIGNALS[fault.verb])
    if fault.verb is not Verb.STOP:
        return Struck(victim=described)
    forever = fault.for_good
    # Who stops the suite for good kills it in the end.
    ending = signal.SIGKILL if forever and victim == suite else signal.SIGCONT
    return Struck(victim=described, undo=lambda: _send(victim, ending))


def _send(process: psutil.Process, number: signal.Signals) -> None:
    with suppress(psutil.Error):
        process.send_signal(number)


def _candidates(target: Target, suite: psutil.Process) -> list[psutil.Process]:
    if target is Target.SUITE:
        return [suite]
    family = suite.children(recursive=True)
    match target:
        case Target.FORK_SERVER:
            return [process for process in family if generation(process) == SERVER]
        case Target.GUARD:
            return [process for process in family if generation(process) == GUARD]
        case Target.IMPORTING:
            return importing(suite)
        case Target.TASK:
            return [process for process in family if generation(process) == TASK]
        case _:
            return [process for process in family if NETWORK_WORDS in process.cmdline()]


#: All three are called like a fork server: the guard forks the server, and that its tasks.
GUARD, SERVER, TASK = 1, 2, 3


def generation(process: psutil.Process) -> int:
    """How many from a process upwards are called like a fork server; 0: it is none."""
    with suppress(psutil.Error):
        if SERVER_WORDS in process.cmdline():
            parent = process.parent()
            return 1 + (0 if parent is None else generation(parent))
    return 0


def importing(suite: psutil.Process) -> list[psutil.Process]:
    """Fork servers that do not serve yet."""
    servers = [each for each in suite.children(recursive=True) if generation(each) == SERVER]
    return [server for server in servers if not _is_ready(server)]


def _is_ready(server: psutil.Process) -> bool:
    """It waits for requests at a selector, which it makes when it has imported everything."""
    files = Path(f"/proc/{server.pid}/fd")
    with suppress(OSError):
        return any("eventpoll" in os.readlink(path) for path in files.iterdir())
    return False


def _describe(process: psutil.Process, suite: psutil.Process) -> str:
    """A task by its name, like `worker:0`; a process else by its number."""
    if process == suite:
        return "suite"
    log = Path(os.readlink(f"/proc/{process.pid}/fd/1")).name
    name = log.removesuffix(".log").replace("-", ":")
    is_task = generation(process) == TASK and log.endswith(".log")
    return name if is_task else f"process {process.pid}"


def _fill(target: Target, ground: Ground) -> Struck:
    disk = ground.temporary_disk if target is Target.TMPDIR else ground.results_disk
    path = disk / "filling"
    with path.open("wb", buffering=0) as stream:
        for size in (1 << 20, 1 << 12):
            with suppress(OSError):
                while stream.write(bytes(size)) == size:
                    pass
    return Struck(victim=str(target), undo=lambda: path.unlink(missing_ok=True))


def _take_handles(fault: Fault, suite: psutil.Process) -> Struck | None:
    victim = picked(_candidates(fault.target, suite), fault.pick)
    if victim is None:
        return None
    few = victim.num_fds() + int(fault.pick * 4)
    undo = _lower(victim, psutil.RLIMIT_NOFILE, few)
    return Struck(victim=f"{_describe(victim, suite)}, at most {few} handles", undo=undo)


def _take_space(fault: Fault, suite: psutil.Process) -> Struck | None:
    """Let a process, and what it forks from now on, map little more than it has."""
    victim = picked(_candidates(fault.target, suite), fault.pick)
    if victim is None:
        return None
    most = victim.memory_info().vms + int(fault.pick * MOST_SPACE)
    undo = _lower(victim, psutil.RLIMIT_AS, most)
    return Struck(victim=f"{_describe(victim, suite)}, at most {most >> 20} MB", undo=undo)


def _lower(victim: psutil.Process, limit: int, most: int) -> Callable[[], None]:
    """Allow a process so much of something, and no more than before; returns what undoes that."""
    before = victim.rlimit(limit)
    assert before is not None
    allowed = most if before[0] == psutil.RLIM_INFINITY else min(most, before[0])
    victim.rlimit(limit, (allowed, before[1]))

    def give_back() -> None:
        with suppress(psutil.Error, OSError):
            victim.rlimit(limit, before)

    return give_back


def _delete(fault: Fault, ground: Ground) -> Struck | None:
    path = picked(_deletable(fault.target, ground), fault.pick)
    if path is None:
        return None
    victim = str(path.relative_to(ground.folder))
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink()
    return Struck(victim=victim, deleted=(path,))


def _deletable(target: Target, ground: Ground) -> list[Path]:
    match target:
        case Target.SCRATCH:
            return sorted(ground.tmpdir.glob("ps-allreduce-*"))
        case Target.RESULTS:
            return [ground.results] if ground.results.exists() else []
        case Target.POINT:
            return sorted({path.parent for path in ground.records()})
        case _:
            return ground.records()
