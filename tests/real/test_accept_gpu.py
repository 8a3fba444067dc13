"""The checklist for GPUs with real processes, whose GPUs are pretended: all of it but CUDA."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from experiments.suite.accept_gpu import accept_gpu
from experiments.suite.gpu_points import MANY_STEPS, Ground
from experiments.sweep.execute import Follower
from launchers.sites.local import LocalLauncher
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.strategies import Strategy

pytestmark = [
    pytest.mark.tensorflow,
    pytest.mark.slow,
    pytest.mark.usefixtures("need_tensorflow"),
]

PATCHED = Path(__file__).with_name("patched_devices.py")


def brief(ground: Ground) -> Experiment:
    """In the place of what only a GPU does in a reasonable time."""
    return ground.point(Strategy.SINGLE, profile=replace(MANY_STEPS, measured_s=6.0))


def test_all_that_can_be_shown_without_cuda_passes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Ground, "sampled", brief)
    monkeypatch.setattr(Ground, "beyond_memory", brief)
    said: list[str] = []
    words = (sys.executable, str(PATCHED), "pretended_gpus")
    given = {"results": tmp_path, "launcher": "local", "interface": None}
    with LocalLauncher(tmp_path / "data", allow_login_node=True, fork_server=words) as launcher:
        status = accept_gpu(launcher, given, "0123456789ab", Follower(), said.append)
    *items, end = said
    failed = [item for item in items if not item.startswith("[passed]")]
    assert status == 1
    # Processors have the memory, and no NCCL.
    assert [item.split(":")[0] for item in failed] == [
        "[FAILED] trains",
        "[FAILED] want of memory is told as such",
    ], items
    assert "NCCL did not print its version" in failed[0]
    assert len(items) == 11, items
    assert "9 passed, 2 FAILED" in end
