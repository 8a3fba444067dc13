"""What watches over a fork server from before its import until it has ended.

Decides that no fork server outlives its line.  One that imports notices for seconds nothing, and
one that is stopped never does, so a small process watches in its place: the same program, from
before the import.  It also ends and removes what a fork server that was killed has left.
"""

from __future__ import annotations

import os
import select
import signal
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from ps_allreduce.fork_server.child import end_with_parent
from ps_allreduce.fork_server.line import Line
from ps_allreduce.fork_server.orphans import adopt_orphans, end_orphans
from ps_allreduce.process import handle_ending
from ps_allreduce.scratch import remove_left_overs

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
        with suppress(OSError):
            remove_left_overs(Path(tempfile.gettempdir()))
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
