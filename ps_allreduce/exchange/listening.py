"""Which tasks of a cluster listen.

Decides how a chief finds out that it may connect, and a task that the chief is gone.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Mapping, Sequence

LISTEN_DEADLINE_S = 60.0

#: A chief that does not answer so often, a second apart, is gone.
LOOKS = 3

#: Whoever waits for a chief that comes and goes looks so often.  A chief that has nothing to do, as
#: when a finished training is started again, must be seen all the same: it stays for `SEEN_S`.
LOOK_S, SEEN_S = 0.1, 3.0


def wait_for_servers(
    cluster: Mapping[str, Sequence[str]], deadline_s: float = LISTEN_DEADLINE_S
) -> None:
    """Return when every worker and server accepts connections.

    gRPC waits a second before it asks again, so asking too early costs more than asking often.

    Args:
        cluster: addresses (`host:port`) of all tasks by type.

    Raises:
        TimeoutError: a task does not listen within the deadline.
    """
    end = time.monotonic() + deadline_s
    for kind in ("ps", "worker"):
        for index, address in enumerate(cluster[kind]):
            while not accepts(address):
                if time.monotonic() > end:
                    raise TimeoutError(
                        f"{kind}:{index} does not listen at {address} after {deadline_s:.0f} s."
                    )
                time.sleep(0.01)


def wait_until_gone(address: str) -> None:
    """Return when a task that was there, for `SEEN_S` at least, does not listen any more."""
    while not accepts(address):
        time.sleep(LOOK_S)
    missed = 0
    while missed < LOOKS:
        time.sleep(1.0)
        missed = 0 if accepts(address) else missed + 1


def accepts(address: str) -> bool:
    """Whether somebody listens at `host:port`."""
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host, int(port)), timeout=1.0):
            return True
    except OSError:
        return False
