"""What is said of trainings that learn: seeds are launches, and those that miss a target count."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from analysis.published.learning import LEARNING
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.inputs.data import OwnDataset
from ps_allreduce.point.measurement import Evaluation, EvaluationMode, Learning
from ps_allreduce.point.strategies import AnyStrategy, AsynchronousServers, SynchronousServers
from ps_allreduce.point.workload import Workload
from ps_allreduce.record.learned import LearningCurve
from ps_allreduce.record.records import RunRecord
from tests.analysis.builders import cases_of, run
from tests.fakes import OWN, make_experiment

UNTIL = Learning(
    evaluation=Evaluation(batches=2, mode=EvaluationMode.SEQUENTIAL),
    evaluation_steps=10,
    target_loss=0.5,
    most_examples=1000,
)


def trained(
    strategy: type[AnyStrategy], seconds: Sequence[float | None], rate: float
) -> list[RunRecord]:
    """A run for each seed, that reached the target after some seconds or never."""
    return [run_of(strategy, seed, reached, rate) for seed, reached in enumerate(seconds, 1)]


def run_of(strategy: type[AnyStrategy], seed: int, seconds: float | None, rate: float) -> RunRecord:
    workload = Workload(model=replace(OWN, learning=UNTIL), data=OwnDataset(), seed=seed)
    own: Experiment = make_experiment(strategy, 2, workload=workload, measurement=UNTIL)
    last = seconds or 30.0
    curve = LearningCurve(
        examples=(32, 1000),
        seconds=(0.0, last),
        loss=(2.0, 0.5 if seconds else 0.9),
        accuracy=(0.1, 0.8),
        target_s=seconds,
        target_examples=None if seconds is None else rate * seconds,
        staleness=() if strategy.synchronous else (1, 6, 3),
    )
    return run(own, rate * (1 + seed / 1000), seed, learned=curve)


def test_seeds_are_launches_and_a_strategy_is_held_against_synchronous_servers() -> None:
    cases = cases_of(
        trained(SynchronousServers, [10.0, 11.0, 10.5, 9.9, 10.2], 100.0),
        trained(AsynchronousServers, [12.0, 13.2, 12.6, 11.9, 12.3], 140.0),
    )
    (case,) = cases
    assert [len(point.launches) for point in case.points] == [5, 5]
    shown = LEARNING.show(cases)
    (sentence,) = shown.sentences
    assert "ps_async, round_robin makes 1.40x" in sentence
    assert "is 1.20x" in sentence
    assert "slower to the target" in sentence
    (table,) = shown.tables
    assert table.rows["reached"].tolist() == ["5/5", "5/5"]
    assert table.rows["staleness"].tolist() == ["-", "1.2 (2)"]
    assert [figure.name for figure in shown.figures] == ["learning-curves", "staleness"]


def test_a_training_that_never_reaches_the_target_widens_the_interval_and_leaves_no_verdict() -> (
    None
):
    shown = LEARNING.show(
        cases_of(
            trained(SynchronousServers, [10.0, 11.0, 10.5, 9.9, 10.2], 100.0),
            trained(AsynchronousServers, [12.0, 13.2, None, None, 12.3], 140.0),
        )
    )
    assert "did not reach the target" in shown.sentences[0]
    _, asynchronous = shown.tables[0].rows.to_dict("records")
    assert asynchronous["reached"] == "3/5"
    assert asynchronous["s to target"] == "13.2 [12, inf]"
