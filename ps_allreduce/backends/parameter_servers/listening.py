"""When a chief may connect to its cluster.

Decides how it finds out.  The strategy decides how it connects.
"""

from __future__ import annotations

import socket
import time

from ps_allreduce.cluster import ClusterSpec, TaskType
from ps_allreduce.errors import LaunchError

LISTEN_DEADLINE_S = 60.0


def wait_for_servers(cluster: ClusterSpec, deadline_s: float = LISTEN_DEADLINE_S) -> None:
    """Return when every worker and server accepts connections.

    gRPC waits a second before it asks again, so asking too early costs more than asking often.

    Raises:
        LaunchError: a task does not listen within the deadline.
    """
    end = time.monotonic() + deadline_s
    for task in cluster.tasks():
        if task.type is TaskType.CHIEF:
            continue
        host, _, port = cluster.address(task).rpartition(":")
        while not _accepts(host, int(port)):
            if time.monotonic() > end:
                raise LaunchError(
                    f"{task} does not listen at {host}:{port} after {deadline_s:.0f} s."
                )
            time.sleep(0.01)


def _accepts(host: str, port: int) -> bool:
    try:
        with socket.create_connection((host, port), timeout=1.0):
            return True
    except OSError:
        return False
