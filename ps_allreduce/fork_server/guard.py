"""What watches over a fork server from before its import until it has ended.

Decides that no fork server outlives its line.  One that imports notices for seconds nothing, and
one that is stopped never does, so a small process watches in its place: the same program, from
before the import.  It also ends and removes what a fork server that was killed has left.

What forked processes leave running (helpers, and daemons that left their group and session) ends
with the last process that may need it: the kernel gives an orphan to its nearest ancestor that
adopts, so whoever is found here was started from here.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import time
from collections.abc import Container
from contextlib import suppress
from dataclasses import dataclass
from typing import NoReturn

import psutil

from ps_allreduce.errors import HostFault
from ps_allreduce.fork_server.child import end_with_parent
from ps_allreduce.fork_server.line import Line
from ps_allreduce.process import handle_ending
from ps_allreduce.scratch import remove_left_overs, scratch_parent

#: As `prctl` knows it.
_PR_SET_CHILD_SUBREAPER = 36

#: A process that hangs in the kernel, on a file system that is gone, cannot be ended.
PATIENCE_S = 2.0


def adopt_orphans() -> None:
    """Become the parent of every process below this one whose own parent ends."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)


def reap_orphans(own: Container[int]) -> None:
    """Take leave of orphans that have ended by themselves; `own` children are left alone."""
    with suppress(ChildProcessError):
        while (ended := _first_ended()) and ended.si_pid not in own:
            os.waitpid(ended.si_pid, 0)


def _first_ended() -> os.waitid_result | None:
    return os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)


def end_orphans() -> None:
    """Kill all children of this process, and those that become its children by that."""
    deadline = time.monotonic() + PATIENCE_S
    with suppress(ChildProcessError):  # there is none any more
        while time.monotonic() < deadline:
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                for child in psutil.Process().children():
                    with suppress(psutil.Error):
                        child.kill()
                time.sleep(0.002)


#: How long a fork server that serves may take to kill what it forked and to remove its files.
END_S = 3.0


def go_on_guarded(line: Line) -> int:
    """Fork a child, in which alone this returns; this process watches over it and then ends.

    Returns:
        A descriptor that the child closes when it serves, and no sooner.
    """
    adopt_orphans()
    told, serving = os.pipe()
    guard = os.getpid()
    pid = os.fork()
    if pid != 0:
        os.close(serving)
        Guard(pid, told).watch(line)
    os.close(told)
    end_with_parent(guard)
    return serving


def wake_guard() -> None:
    """Let the guard of this process go on if somebody has stopped it: it would outlive the line."""
    os.kill(os.getppid(), signal.SIGCONT)


@dataclass(slots=True)
class Guard:
    """Watches over one child.

    Attributes:
        told: readable when the child serves.
        deadline: when the child is killed, in seconds of the monotonic clock; None as long as it is
            wanted.
    """

    pid: int
    told: int
    deadline: float | None = None

    def watch(self, line: Line) -> NoReturn:
        """Wait until the child has ended; see that it does if the line is cut."""
        wake, sink = os.pipe()
        os.set_blocking(sink, False)
        signal.set_wakeup_fd(sink, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        handle_ending(lambda *_: self._end())
        poll = select.poll()
        poll.register(line, select.POLLRDHUP)
        poll.register(wake, select.POLLIN)
        while (status := self._status()) is None:
            for ready, _ in poll.poll(self._patience_ms()):
                if ready == wake:
                    os.read(wake, 64)
                else:
                    poll.unregister(line)
                    self._end()
        end_orphans()
        line.close()  # which tells the launcher
        with suppress(OSError, HostFault):
            remove_left_overs(scratch_parent())
        # Who was asked to end has not failed: srun would kill the servers of other hosts.
        os._exit(status if self.deadline is None else 0)

    def _status(self) -> int | None:
        """What the child has ended with, as a shell tells it; None while it runs."""
        if self.deadline is not None and time.monotonic() >= self.deadline:
            os.kill(self.pid, signal.SIGKILL)
        pid, status = os.waitpid(self.pid, os.WNOHANG)
        code = os.waitstatus_to_exitcode(status)
        return None if pid == 0 else code if code >= 0 else 128 - code

    def _patience_ms(self) -> float | None:
        if self.deadline is None:
            return None
        return max(1.0, 1000 * (self.deadline - time.monotonic()))

    def _end(self) -> None:
        """Ask the child to end; one that still imports has nothing to put in order."""
        serves = bool(select.select([self.told], [], [], 0)[0])
        if self.deadline is None:
            self.deadline = time.monotonic() + (END_S if serves else 0.0)
            os.kill(self.pid, signal.SIGTERM)
