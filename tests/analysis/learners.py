"""Runs that learned, made up: a target that was reached after some seconds, or never."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.inputs.data import OwnDataset
from ps_allreduce.point.measurement import Evaluation, EvaluationMode, Learning
from ps_allreduce.point.strategies import AnyStrategy
from ps_allreduce.point.workload import Workload
from ps_allreduce.record.evaluation_timings import LearningCurve
from ps_allreduce.record.records import RunRecord
from tests.analysis.builders import run
from tests.fakes import OWN, make_experiment

UNTIL = Learning(
    evaluation=Evaluation(batches=2, mode=EvaluationMode.SEQUENTIAL),
    evaluation_steps=10,
    target_loss=0.5,
    most_examples=1000,
)

MODEL = replace(OWN, learning=UNTIL)


def trained(
    strategy: type[AnyStrategy],
    seconds: Sequence[float | None],
    rate: float,
    workers: int = 2,
    **settings: Any,
) -> list[RunRecord]:
    """A run for each seed."""
    return [
        run_of(strategy, (seed, reached), rate, workers, **settings)
        for seed, reached in enumerate(seconds, 1)
    ]


def run_of(
    strategy: type[AnyStrategy],
    reached: tuple[int, float | None],
    rate: float,
    workers: int = 2,
    **settings: Any,
) -> RunRecord:
    """A run with a seed, and the seconds until it reached the target."""
    seed, seconds = reached
    settings = {"workload": Workload(model=MODEL, data=OwnDataset())} | settings
    settings["workload"] = replace(settings["workload"], seed=seed)
    own: Experiment = make_experiment(strategy, workers, measurement=UNTIL, **settings)
    curve = LearningCurve(
        examples=(32, 1000),
        seconds=(0.0, seconds or 30.0),
        loss=(2.0, 0.5 if seconds else 0.9),
        accuracy=(0.1, 0.8),
        gradient_norm=(3.0, 1.0),
        target_s=seconds,
        target_examples=None if seconds is None else rate * seconds,
        staleness=() if strategy.synchronous else (1, 6, 3),
    )
    return run(own, rate * (1 + seed / 1000), seed, learned=curve)
