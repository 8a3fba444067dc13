"""Fork servers that can be checked up, and some that fall ill while they are."""

from __future__ import annotations

import sys

from tests.pretend import FORK_SERVER_SCRIPT

#: The jobs of a check-up are the real ones; the host is watched for a shorter time.
JOBS = """
import signal, time
from ps_allreduce.fork_server import check_up_messages as check_up
from ps_allreduce.errors import LaunchError
from ps_allreduce.inspection import state as host_state
from ps_allreduce.inspection.check_up import CHECK_UP_JOBS

host_state.WATCH_S = 0.05

def do_nothing(request, report):
    pass

def hang(request, report):
    time.sleep(600)

def complain(request, report):
    raise LaunchError("out of luck.")

def die(request, report):
    os.kill(os.getppid(), signal.SIGKILL)
    time.sleep(600)

jobs = CHECK_UP_JOBS | {
"""


def server(**changed: str) -> tuple[str, ...]:
    """The command of a fork server whose job for a request is one of the above instead."""
    lines = "".join(f"    check_up.{request}: {job},\n" for request, job in changed.items())
    return (sys.executable, "-c", FORK_SERVER_SCRIPT.replace("jobs = {\n", JOBS + lines))
