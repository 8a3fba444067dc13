"""Runs that are made anew at every call, whatever was run before, and the weights they end with."""

from __future__ import annotations

import tempfile
from pathlib import Path

from experiments.sweep.session import Session, run_uninterrupted
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.record.records import RunRecord
from ps_allreduce.record.variables import RunWeights, load_weights


def launch_again(session: Session, point: Experiment, weights: Path | None = None) -> RunRecord:
    """One more run of a point; every one is recorded.

    Args:
        weights: file that takes the weights.

    Raises:
        UserError: it cannot be run here, or the folder cannot be used.
        LaunchError: the host has a fault that does not pass.
        KeyboardInterrupt: somebody has ended the run.
    """
    session.place.launcher.check(point)
    return run_uninterrupted(session, point, weights)


def train(session: Session, point: Experiment) -> tuple[RunRecord, RunWeights | None]:
    """The same, with the weights; None if it did not get so far."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "weights.npz"
        record = launch_again(session, point, path)
        return record, load_weights(path) if path.exists() else None
