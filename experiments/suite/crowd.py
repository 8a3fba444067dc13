"""How the launcher fares with many: callers at its port, and fork servers of this machine.

Decides how many there are and what is timed.  Nothing is judged: on a busy machine all of it takes
longer.
"""

from __future__ import annotations

import secrets
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from launchers.fork_servers.callers import BACKLOG, let_in
from launchers.fork_servers.host_servers import HostServers, ask_hosts
from launchers.fork_servers.started import StartedForkServer
from launchers.processes import FORK_SERVER
from launchers.sites.local import LOOPBACK, LocalForkServer
from ps_allreduce.errors import HostFault
from ps_allreduce.fork_server.messages import DescribeModel, Hello, Ready, encode
from ps_allreduce.point.workload import Workload

CALLERS = 256

#: Callers who say nothing.
STRANGERS = 64

SERVERS = (2, 8, 32)

#: To build a small model.
JOB_DEADLINE_S = 300.0


def time_crowds() -> Iterator[str]:
    """Time one crowd after the other; a sentence about each.

    Raises:
        HostFault: a fork server does not come up, or cannot do its job.
    """
    first = LocalForkServer(FORK_SERVER, "n0")
    try:
        ready = first.client().ready
    finally:
        first.close()
    yield (
        f"{CALLERS} fork servers that call, after {STRANGERS} silent strangers, are let in within "
        f"{time_callers(ready):.2f} s"
    )
    for count in SERVERS:
        each = time_servers(count) / count
        yield f"{count} fork servers come up, build a model and end: {each:.2f} s for each"


def time_callers(ready: Ready) -> float:
    """Seconds until all callers are let in, who say what a fork server said."""
    token = secrets.token_hex(16)
    with ExitStack() as stack:
        port = stack.enter_context(socket.create_server((LOOPBACK, 0), backlog=BACKLOG))

        def call(words: bytes) -> None:
            line = stack.enter_context(socket.create_connection(port.getsockname()))
            line.sendall(words)

        for _ in range(STRANGERS):
            call(b"")
        hosts = [f"n{number}" for number in range(CALLERS)]
        for host in hosts:
            said = replace(ready, facts=replace(ready.facts, name=host, scheduler_name=""))
            call(encode(Hello(token=token)) + encode(said))
        begin = time.monotonic()
        clients = let_in(port, hosts, token, Path("crowd.log"), lambda: "")
        took = time.monotonic() - begin
        for client in clients.values():
            client.close()
    return took


def time_servers(count: int) -> float:
    """Seconds in which fork servers come up together, do a job each, and end.

    Raises:
        HostFault: one does not come up, or cannot do its job.
    """
    begin = time.monotonic()
    started = [LocalForkServer(FORK_SERVER, f"n{number}") for number in range(count)]
    with ExitStack() as stack:
        for end in (StartedForkServer.close, StartedForkServer.hang_up):  # the last one first
            for server in started:
                stack.callback(end, server)
        for server in started:
            server.start()
        servers = HostServers({server.host: server.client() for server in started})
        answers = ask_hosts(
            servers,
            lambda client: DescribeModel(
                workload=Workload(), data_dir="", log=client.job_log("crowd")
            ),
            JOB_DEADLINE_S,
        )
        if answers.troubles:
            host, reason = next(iter(answers.troubles.items()))
            raise HostFault(f"{host} of {count} fork servers: {reason}.")
    return time.monotonic() - begin
