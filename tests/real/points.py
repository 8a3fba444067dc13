"""Short experiments for real runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from launchers.protocol import LaunchedRun
from launchers.run.launcher import HostsLauncher
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.measurement import Measurement
from ps_allreduce.point.strategies import AnyStrategy
from ps_allreduce.point.wire import Wire
from tests.fakes import make_experiment

#: A run makes exactly 1 + 1 + 3 + 6 steps: first, warm-up, settling, measured.
BRIEF = Measurement(warmup_steps=1, warmup_s=0.0, measured_steps=6)

#: Longer than anybody waits: for runs that something else ends.
LONG = replace(BRIEF, measured_s=60.0)

DEADLINE_S = 90.0


def point(strategy: type[AnyStrategy], workers: int = 1, **changes: Any) -> Experiment:
    """A brief experiment with two servers, or with all-reduce in buckets, if nothing is said."""
    settings: dict[str, Any] = {"measurement": BRIEF}
    if strategy.uses_collective and "bytes_per_pack" not in changes:
        settings["wire"] = Wire()
    return make_experiment(strategy, workers, **(settings | changes))


def launch(
    launcher: HostsLauncher,
    experiment: Experiment,
    progress: Callable[[str], None] = lambda _: None,
    weights: Path | None = None,
    deadline_s: float = DEADLINE_S,
) -> LaunchedRun:
    """Run an experiment for real."""
    return launcher.launch(experiment, deadline_s=deadline_s, progress=progress, weights=weights)
