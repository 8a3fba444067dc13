"""A task runs where it was planned, on the cores that it was given, or not at all."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from typing import Any

import pytest

from ps_allreduce.record.provenance import ROOT

pytestmark = pytest.mark.tensorflow

#: Takes the place of a task and tells what it reported or why it did not.
TASK = """
import json, sys
from dataclasses import replace
from pathlib import Path
from ps_allreduce.errors import LaunchError
from ps_allreduce.runner.forked_jobs import take_place
from ps_allreduce.serialization import to_json
from tests.pretend import fake_task
host, cores = json.loads(sys.argv[1])
request = replace(fake_task("worker:0", "", Path("log")), host=host, cores=tuple(cores))
said = []
try:
    take_place(request, lambda answer: said.append([type(answer).__name__, to_json(answer)]))
except LaunchError as error:
    said.append(str(error))
print(json.dumps(said))
"""


def take_place(host: str, cores: list[int], **environment: str) -> list[Any]:
    done = subprocess.run(
        [sys.executable, "-c", TASK, json.dumps([host, cores])],
        cwd=ROOT,
        env=os.environ | environment,
        capture_output=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    said: list[Any] = json.loads(done.stdout)
    return said


def test_a_task_reports_what_it_was_really_given() -> None:
    core = max(os.sched_getaffinity(0))
    environment = {"CUDA_VISIBLE_DEVICES": "GPU-1,GPU-2", "NCCL_ALGO": "Ring"}
    (said,) = take_place(socket.gethostname(), [core], **environment)
    event, details = said
    settings, _, _ = (details.pop(name) for name in ("settings", "name", "time"))
    assert (event, details) == ("TaskPlaced", {"cores": [core], "gpus": "GPU-1,GPU-2"})
    assert settings["NCCL_ALGO"] == "Ring"
    assert settings["data_layout"] in ("channels_last", "channels_first")


def test_a_task_on_another_host_or_that_may_not_use_its_cores_ends() -> None:
    (said,) = take_place("n10", [0])
    assert said == f"planned on host n10 but started on {socket.gethostname()}."
    (said,) = take_place(socket.gethostname(), [1023])
    assert said.startswith(f"cannot be pinned to cores [1023] of {socket.gethostname()}")
