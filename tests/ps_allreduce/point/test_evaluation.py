"""Evaluations: who takes which batches, and what is made of their timings."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.cli.requests import EvaluationRequest
from ps_allreduce.errors import UserError
from ps_allreduce.point.measurement import Evaluation, EvaluationMode, Measurement
from ps_allreduce.record.evaluation_timings import EvaluationTable, evaluation_times
from ps_allreduce.record.files import load_evaluation, save_raw
from ps_allreduce.record.step_table import Phase, concatenate
from tests.fakes import make_steps, no_events

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
