"""An `srun` that starts fork servers with made-up jobs here, one for each host of the step.

It stays as long as one of them runs, and kills them when it is asked to end.  Any other command
runs here once.  Below the folder FAKE_SRUN it notes its words in `asked`, a line each, and fails if
a host of the step is in `down`.  Its hosts have the program whose digest is in `program`.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

from launchers.sites.slurm.hostlist import parse_hostlist
from ps_allreduce.fork_server.messages import TOKEN, Hello, encode
from tests.pretend import fake_server

FOLDER = Path(os.environ["FAKE_SRUN"])


def start(host: str, callers: str) -> subprocess.Popen[bytes]:
    """A fork server that has called the launcher."""
    port = int(callers.rpartition(":")[2])
    with socket.create_connection(("127.0.0.1", port)) as line:
        line.sendall(encode(Hello(token=os.environ[TOKEN])))
        pulled = FOLDER / "program"
        other = ["--program", pulled.read_text()] if pulled.exists() else []
        return subprocess.Popen(
            fake_server("--socket", str(line.fileno()), *other),
            pass_fds=[line.fileno()],
            env=os.environ | {"SLURMD_NODENAME": host},
        )


def main() -> int:
    with (FOLDER / "asked").open("a") as asked:
        print(*sys.argv[1:], file=asked)
    (nodes,) = [word.partition("=")[2] for word in sys.argv if word.startswith("--nodelist=")]
    down = (FOLDER / "down").read_text() if (FOLDER / "down").exists() else ""
    if down in parse_hostlist(nodes):
        print(f"srun: error: {down} is down", file=sys.stderr)
        return 1
    if "--connect" not in sys.argv:
        return subprocess.call(sys.argv[sys.argv.index("--job-name=ps_allreduce") + 1 :])
    servers = [start(host, sys.argv[-1]) for host in parse_hostlist(nodes)]

    def end(*_: object) -> None:
        for server in servers:
            server.kill()

    signal.signal(signal.SIGTERM, end)
    return max(abs(server.wait()) for server in servers)


if __name__ == "__main__":
    sys.exit(main())
