"""The Horovod that `make setup HOROVOD=1` builds works with this TensorFlow, over Gloo."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from threading import Thread

import pytest

from tests.conftest import skip_or_fail

pytestmark = [pytest.mark.tensorflow, pytest.mark.usefixtures("need_tensorflow")]

WORKER = Path(__file__).with_name("horovod_worker.py")

NUM_PROCESSES = 2

#: Two imports of TensorFlow on a busy machine.
PATIENCE_S = 200.0


@pytest.fixture
def rendezvous_port() -> Iterator[int]:
    """Of a server at which the processes find each other."""
    if importlib.util.find_spec("horovod") is None:
        skip_or_fail("Horovod is not installed; 'make setup HOROVOD=1' builds it")
    from horovod.runner.http.http_server import RendezvousHandler, RendezvousHTTPServer

    with RendezvousHTTPServer(("127.0.0.1", 0), RendezvousHandler, verbose=False) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_address[1]
        server.shutdown()


def variables(rank: int, port: int) -> dict[str, str]:
    """What Horovod reads: who this process is, and where the others are found."""
    return {
        "HOROVOD_RANK": str(rank),
        "HOROVOD_SIZE": str(NUM_PROCESSES),
        "HOROVOD_LOCAL_RANK": str(rank),
        "HOROVOD_LOCAL_SIZE": str(NUM_PROCESSES),
        "HOROVOD_GLOO_RENDEZVOUS_ADDR": "127.0.0.1",
        "HOROVOD_GLOO_RENDEZVOUS_PORT": str(port),
        "HOROVOD_GLOO_IFACE": "lo",
    }


def test_two_processes_average_a_tensor(rendezvous_port: int) -> None:
    processes = [
        subprocess.Popen(
            [sys.executable, str(WORKER)],
            env=os.environ | variables(rank, rendezvous_port),
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(NUM_PROCESSES)
    ]
    try:
        said = [process.communicate(timeout=PATIENCE_S)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert [process.returncode for process in processes] == [0, 0]
    for text in said:
        assert json.loads(text) == {
            "gloo_built": True,
            "mpi_built": False,
            "size": 2,
            "sum": [3.0, 6.0],
            "averages": [[1.5, 3.0], [15.0, 30.0]],
        }
