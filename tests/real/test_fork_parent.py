"""What the fork server must not do before it forks."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.tensorflow, pytest.mark.usefixtures("need_tensorflow")]

ROOT = Path(__file__).resolve().parents[2]

CHECK = """
import sys
from ps_allreduce.fork_server.unused_imports import UNUSED_BY_TASKS, left_out
with left_out(*UNUSED_BY_TASKS):
    from ps_allreduce.runner import jobs
from tensorflow.python.eager import context
present = context.context_safe()
assert present is None or not present._initialized, "TensorFlow's runtime was started"
print("asleep", *sys.modules.keys() & set(UNUSED_BY_TASKS))
"""


def test_importing_all_jobs_executes_nothing_of_tensorflow_and_loads_nothing_unused() -> None:
    done = subprocess.run(
        [sys.executable, "-c", CHECK],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "asleep\n"
