"""What forked processes leave running: helpers, and daemons that left their group and session.

Decides that these end with the last process that may need them.  The kernel gives an orphan to its
nearest ancestor that adopts, so whoever is found here was started from here.
"""

from __future__ import annotations

import ctypes
import os
import signal
import time
from collections.abc import Container
from contextlib import suppress

import psutil

#: As `prctl` knows it.
_PR_SET_CHILD_SUBREAPER = 36

#: A process that hangs in the kernel, on a file system that is gone, cannot be ended.
PATIENCE_S = 2.0


def adopt_orphans() -> None:
    """Become the parent of every process below this one whose own parent ends."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)


def end_group(pid: int) -> None:
    """Kill the processes in the group that a child of this process leads; none is fine."""
    with suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)


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
