"""Evaluations: who takes which batches, and the curve that they make of a training."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.cli.requests import EvaluationRequest
from ps_allreduce.errors import UserError
from ps_allreduce.point.measurement import Evaluation, EvaluationMode, Learning, Measurement
from ps_allreduce.point.strategies import AsynchronousServers, SynchronousServers
from ps_allreduce.record.evaluation_timings import (
    EvaluationTable,
    evaluation_times,
    learned,
    reached,
    staleness_of,
)
from ps_allreduce.record.files import load_evaluation, save_raw
from ps_allreduce.record.step_table import Phase, StepTable, concatenate
from tests.fakes import make_experiment, make_steps, no_events

EVALUATION = Evaluation(batches=1, mode=EvaluationMode.SEQUENTIAL)

ASYNCHRONOUS = make_experiment(AsynchronousServers, 2)
BATCH = ASYNCHRONOUS.workload.batch_per_worker


def until(**target: float) -> Learning:
    settings: dict[str, Any] = {"evaluation_steps": 2, "most_examples": 1000} | target
    return Learning(evaluation=EVALUATION, **settings)


def steps_at(*ends: list[float]) -> StepTable:
    """The steps of each worker, by when they ended; each took a second."""
    tables = [
        make_steps(worker, own, [Phase.MEASURED] * len(own)) for worker, own in enumerate(ends)
    ]
    steps = concatenate(tables)
    return replace(steps, start=steps.end - 1)


def evaluations(*rows: tuple[float, float, float]) -> EvaluationTable:
    """Loss, begin and end of each."""
    return concatenate(
        [
            EvaluationTable.of_rows(
                np.asarray([(0, loss, 1 - loss, 2 * loss, begin, begin, end)]), number
            )
            for number, (loss, begin, end) in enumerate(rows)
        ]
    )


def test_the_clock_of_training_stands_still_while_it_evaluates() -> None:
    steps = steps_at([1, 21, 22, 43, 44], [1, 22, 23, 43, 45])
    evaluated = evaluations((0.9, 5, 15), (0.5, 25, 35), (0.3, 50, 55))
    on_clock, curve = learned(ASYNCHRONOUS, until(target_loss=0.4), steps, evaluated)
    assert curve.examples == (2 * BATCH, 6 * BATCH, 10 * BATCH)
    assert curve.seconds == pytest.approx((0.0, 3.0, 6.0))
    assert sorted(on_clock.end) == pytest.approx([0, 0, 1, 2, 2, 3, 4, 4, 5, 6])
    # Half of the way from 0.5 to 0.3.
    assert curve.target_s == pytest.approx(4.5)
    assert curve.target_examples == pytest.approx(8 * BATCH)
    assert curve.accuracy == pytest.approx((0.1, 0.5, 0.7))
    assert curve.gradient_norm == pytest.approx((1.8, 1.0, 0.6))
    assert sum(curve.staleness) == len(steps)


def test_a_loss_that_is_not_finite_ends_the_curve() -> None:
    steps, evaluated = steps_at([1, 21], [1, 22]), evaluations((0.9, 5, 15), (np.nan, 25, 35))
    _, curve = learned(make_experiment(SynchronousServers, 2), until(), steps, evaluated)
    assert curve.loss == (0.9,)
    assert curve.target_s is None
    assert curve.staleness == ()


@pytest.mark.parametrize(
    ("target", "at"),
    [
        pytest.param({"target_loss": 0.5}, 1.5, id="between two"),
        pytest.param({"target_loss": 0.95}, 0.0, id="at the first"),
        pytest.param({"target_loss": 0.1}, None, id="never"),
        pytest.param({"target_accuracy": 0.5}, 2.5, id="of the accuracy"),
        pytest.param({}, None, id="no target"),
    ],
)
def test_a_target_is_reached_on_the_straight_line_before(
    target: dict[str, float], at: float | None
) -> None:
    loss, accuracy = np.asarray([0.9, 0.6, 0.4, 0.3]), np.asarray([0.1, 0.2, 0.4, 0.6])
    found = reached(until(**target), loss, accuracy)
    assert found == (None if at is None else pytest.approx(at))


def test_staleness_counts_the_updates_of_others_between_two_of_ones_own() -> None:
    # In the order of ends: 0, 1, 0, 0, 1, 0.
    stale = staleness_of(steps_at([1, 3, 4, 6], [2, 5]))
    assert stale.tolist() == [0, 1, 0, 1, 1, 2]


def test_synchronous_steps_before_a_switch_are_not_stale() -> None:
    own = make_experiment(AsynchronousServers, 2, synchronous_steps=1)
    steps, evaluated = steps_at([1, 3, 4], [2, 5, 6]), evaluations((0.9, 2.1, 2.2), (0.5, 7, 8))
    _, curve = learned(own, until(), steps, evaluated)
    # Later steps end in the order 0, 0, 1, 1.
    assert curve.staleness == (5, 0, 1)


@pytest.mark.parametrize(
    ("stated", "said"),
    [
        ({"target_loss": 0.1, "target_accuracy": 0.9}, "not both"),
        ({"target_accuracy": 90}, "a share up to 1, got 90"),
        ({"target_loss": math.nan}, "target_loss must be a number"),
        ({"most_examples": 1e5}, "most_examples must be a whole number .*, got 100000"),
        ({"evaluation_steps": 1}, "evaluation_steps must be at least 2"),
        ({"most_s": -1}, "most_s must be at least 0"),
    ],
)
def test_a_training_that_cannot_end_as_stated_is_refused(
    stated: dict[str, float], said: str
) -> None:
    with pytest.raises(UserError, match=said):
        until(**stated)


STEPS = make_steps(0, [1.0], [Phase.FIRST])


@given(st.integers(1, 500), st.integers(1, 64), st.sampled_from(EvaluationMode))
def test_all_batches_are_taken_and_shares_are_even(
    batches: int, workers: int, mode: EvaluationMode
) -> None:
    shares = Evaluation(batches=batches, mode=mode).shares(workers)
    assert (len(shares), sum(shares)) == (workers, batches)
    taking = [share for share in shares if share]
    assert max(taking) - min(taking) <= 1
    assert len(taking) == (1 if mode is EvaluationMode.SEQUENTIAL else min(batches, workers))


@pytest.mark.parametrize("batches", [0, -1, 10**10])
def test_batches_that_make_no_sense_are_refused(batches: int) -> None:
    with pytest.raises(UserError, match="evaluation_batches"):
        Evaluation(batches=batches)


STATED = {"evaluation_batches": 4, "evaluation_steps": 5, "most_examples": 1000}


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"target_los": 0.3, "most": 1}, "^no key target_los, most is known: choose of .*_loss"),
        ({"evaluation_steps": "5"}, "evaluation_steps must be a whole number"),
        ({"target_loss": "low"}, "a dict of numbers, with evaluation_batches, evaluation_steps"),
    ],
)
def test_what_a_model_states_is_refused_by_the_name_of_its_key(
    changes: dict[str, object], told: str
) -> None:
    assert Learning.of_keys(STATED).evaluation.batches == 4
    with pytest.raises(UserError, match=told):
        Learning.of_keys(STATED | changes)


@pytest.mark.parametrize("stated", [{}, {"evaluation_batches": 4}, 5, "often"])
def test_what_a_model_has_to_state_is_told(stated: object) -> None:
    with pytest.raises(UserError, match="most_examples"):
        Learning.of_keys(stated)


def test_who_evaluates_is_nothing_without_batches() -> None:
    assert EvaluationRequest().put_into(Measurement()) == Measurement()
    with pytest.raises(UserError, match="--evaluation-batches"):
        EvaluationRequest(evaluation=EvaluationMode.SEQUENTIAL)


def table() -> EvaluationTable:
    """Two workers whose clocks are a minute apart; each batch waits 1 s and computes 2 s."""
    rows = [
        (0, 0.5, 0.2, np.nan, 100, 101, 103),
        (0, 0.3, 0.4, np.nan, 103, 104, 106),
        (1, 0.1, 0.6, np.nan, 161, 162, 164),
    ]
    return EvaluationTable.of_rows(np.asarray(rows, float))


def test_an_evaluation_lasts_from_the_first_begin_to_the_last_end_on_one_clock() -> None:
    times = evaluation_times(table().shifted([0.0, 60.0]), 32, 3)
    assert times.seconds == pytest.approx(6.0)
    assert times.examples_per_sec == pytest.approx(3 * 32 / 6)
    assert times.input_wait_s == pytest.approx(1.0)
    assert times.loss == pytest.approx(0.3)
    assert times.batches_per_worker == (2, 1, 0)


def test_an_evaluation_without_batches_or_with_an_infinite_loss_has_no_figures() -> None:
    with pytest.raises(ValueError, match="no batch"):
        evaluation_times(EvaluationTable.empty(), 32, 2)
    lost = EvaluationTable.of_rows(np.asarray([(0, np.nan, 0, np.nan, 1, 2, 3)], float))
    with pytest.raises(ValueError, match="loss"):
        evaluation_times(lost, 32, 2)


def test_raw_timings_keep_what_was_evaluated(tmp_path: Path) -> None:
    path = tmp_path / "0-0.npz"
    save_raw(path, STEPS, no_events(), concatenate([table(), EvaluationTable.empty()]))
    kept = load_evaluation(path)
    assert kept.end.tolist() == table().end.tolist()
    save_raw(path, STEPS, no_events())
    assert not len(load_evaluation(path))
