"""POP metrics hold their identities, and say what they should of workers by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from analysis.derive.step_parts import PopMetrics, pop_metrics

SHAPES = st.tuples(st.integers(1, 6), st.integers(1, 8))
SECONDS = st.floats(1e-6, 10.0)


def exact(value: float) -> object:
    return pytest.approx(value, rel=1e-9)


def metrics_of(useful: np.ndarray, waits: np.ndarray, length_s: float) -> PopMetrics:
    found = pop_metrics(useful, waits, length_s)
    assert found is not None
    return found


@given(st.data(), SHAPES, st.floats(0.0, 10.0))
def test_identities(data: st.DataObject, shape: tuple[int, int], lost_s: float) -> None:
    useful = data.draw(arrays(np.float64, shape, elements=SECONDS))
    waits = data.draw(arrays(np.float64, shape, elements=st.floats(0.0, 1.0)))
    length_s = float((useful + waits).max(axis=0).sum()) + lost_s
    found, each = metrics_of(useful, waits, length_s), useful.sum(axis=1)
    communication = found.serialisation * found.transfer
    assert communication == exact(each.max() / length_s)
    assert found.load_balance * communication == exact(each.mean() / length_s)
    shares = (found.load_balance, found.serialisation, found.transfer)
    assert all(0.0 < share <= 1.0 + 1e-9 for share in shares)


def test_workers_that_are_slow_in_turn_cost_serialisation_and_one_slow_one_balance() -> None:
    nothing = np.zeros((2, 2))
    in_turn = metrics_of(np.array([[1.0, 3.0], [3.0, 1.0]]), nothing, 8.0)
    assert (in_turn.load_balance, in_turn.serialisation, in_turn.transfer) == (1, 4 / 6, 6 / 8)
    always = metrics_of(np.array([[1.0, 1.0], [3.0, 3.0]]), nothing, 8.0)
    assert (always.load_balance, always.serialisation, always.transfer) == (4 / 6, 1, 6 / 8)


def test_without_barriers_only_input_serialises() -> None:
    useful, waits = np.array([[4.0], [6.0]]), np.array([[0.0], [2.0]])
    assert metrics_of(useful, np.zeros((2, 1)), 10.0).serialisation == 1.0
    assert metrics_of(useful, waits, 10.0).serialisation == 6 / 8


def test_clocks_that_differ_make_no_transfer_above_one() -> None:
    assert metrics_of(np.ones((2, 3)), np.zeros((2, 3)), 2.999).transfer == 1.0
    assert pop_metrics(np.zeros((2, 3)), np.zeros((2, 3)), 1.0) is None
