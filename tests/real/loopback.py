"""What a run on one host sends over loopback, counted by the kernel."""

from __future__ import annotations

import psutil

from ps_allreduce.point.experiment import Experiment
from ps_allreduce.record.records import Status
from ps_allreduce.record.steps import Phase
from tests.cluster import LocalLauncher
from tests.real.points import launch


def loopback_bytes_per_image(launcher: LocalLauncher, experiment: Experiment) -> float:
    """Bytes that crossed loopback between warm-up and end, per image trained."""
    marks: dict[str, int] = {}

    def progress(stage: str) -> None:
        if stage not in marks:
            marks[stage] = psutil.net_io_counters(pernic=True)["lo"].bytes_sent

    run = launch(launcher, experiment, progress=progress)
    assert run.status is Status.OK, run.reason
    assert run.steps is not None
    images = int((run.steps.phase >= Phase.MEASURED).sum()) * experiment.workload.examples_per_step
    return (marks["done"] - marks["measured"]) / images
