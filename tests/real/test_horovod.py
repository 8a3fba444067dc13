"""The Horovod that `make setup HOROVOD=1` builds works with this TensorFlow, over Gloo.

Its processes meet as the suite's do: at a server that serves who knows a token.
"""

from __future__ import annotations

import importlib.util
import json
import os
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from ps_allreduce.record.provenance import ROOT
from tests.conftest import skip_or_fail

pytestmark = pytest.mark.tensorflow

WORKER = Path(__file__).with_name("horovod_worker.py")

NUM_PROCESSES = 2

#: Two imports of TensorFlow on a busy machine.
PATIENCE_S = 200.0


@pytest.fixture
def address() -> str:
    """Where the processes can meet: at a port that the kernel gives nobody until they are there."""
    if importlib.util.find_spec("horovod") is None:
        skip_or_fail("Horovod is not installed; 'make setup HOROVOD=1' builds it")
    first, _ = map(int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
    for port in range(first - 1, first - 1000, -1):
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return f"127.0.0.1:{port}"
    raise AssertionError(f"no port below {first} is free")


def variables(rank: int) -> dict[str, str]:
    """What Horovod reads: who this process is."""
    return {
        "HOROVOD_RANK": str(rank),
        "HOROVOD_SIZE": str(NUM_PROCESSES),
        "HOROVOD_LOCAL_RANK": str(rank),
        "HOROVOD_LOCAL_SIZE": str(NUM_PROCESSES),
        "HOROVOD_GLOO_IFACE": "lo",
    }


def test_two_processes_that_know_a_token_average_a_tensor(address: str) -> None:
    processes = [
        subprocess.Popen(
            [sys.executable, str(WORKER), address],
            env=os.environ | variables(rank) | {"PYTHONPATH": str(ROOT)},
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
    first, *others = map(json.loads, said)
    assert set(first.pop("strangers")) == {403}
    for found in [first, *others]:
        assert found == {
            "gloo_built": True,
            "mpi_built": False,
            "size": 2,
            "sum": [3.0, 6.0],
            "averages": [[1.5, 3.0], [15.0, 30.0]],
        }
