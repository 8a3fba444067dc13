"""The checklist for GPUs with real processes, whose GPUs are pretended: all of it but CUDA."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from experiments import surroundings
from experiments.studies.scope import Scope
from experiments.suite import accept_gpu
from launchers.settings import LauncherSettings
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.strategies import Single
from ps_allreduce.point.workload import Workload
from tests.cluster import LocalLauncher

pytestmark = [pytest.mark.tensorflow, pytest.mark.slow]

PRETENDED = Path(__file__).with_name("pretended_gpus.py")


def brief(scope: Scope, *_: object) -> Experiment:
    """In the place of what only a GPU does in a reasonable time."""
    longer = replace(accept_gpu.MANY_STEPS, measured_s=6.0)
    return replace(scope.point(Workload(), Single, 1), measurement=longer)


def test_all_that_can_be_shown_without_cuda_passes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(accept_gpu, "sampled", brief)
    monkeypatch.setattr(accept_gpu, "beyond_memory", brief)
    launcher = LocalLauncher(tmp_path / "data", fork_server=(sys.executable, str(PRETENDED)))
    monkeypatch.setattr(surroundings, "launcher_of", lambda _: launcher)
    status = accept_gpu.accept_gpu(LauncherSettings(results=tmp_path))
    items = [line for line in capsys.readouterr().out.splitlines() if line.startswith("[")]
    failed = [item for item in items if not item.startswith("[passed]")]
    assert status == 1
    # Processors have the memory, and no NCCL.
    assert [item.split(":")[0] for item in failed] == [
        "[FAILED] trains",
        "[FAILED] want of memory is told as such",
    ], items
    assert "NCCL did not print its version" in failed[0]
    assert len(items) == 11, items
