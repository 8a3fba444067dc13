"""Whether step times are steady: noise ends early, whatever still changes is waited for."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ps_allreduce.runner.steadiness import is_steady, round_times
from tests.examples import fast

Floats = npt.NDArray[np.float64]

lengths = st.integers(10, 400)
seeds = st.integers(0, 10_000)


def noise(seed: int, count: int, spread: float = 0.02) -> Floats:
    """Step times of one speed."""
    return np.asarray(np.exp(spread * np.random.default_rng(seed).normal(size=count)))


def share_steady(times: list[Floats]) -> float:
    return float(np.mean([is_steady(each) for each in times]))


@pytest.mark.parametrize("count", [10, 20, 50, 200])
@pytest.mark.parametrize("spread", [0.0, 0.02, 0.2])
def test_flat_noise_is_nearly_always_steady(count: int, spread: float) -> None:
    assert share_steady([noise(seed, count, spread) for seed in range(200)]) >= 0.9


@pytest.mark.parametrize("count", [50, 200])
def test_noise_with_outliers_is_steady_too(count: int) -> None:
    series = []
    for seed in range(200):
        times = noise(seed, count, 0.2)
        times[np.random.default_rng(seed).random(count) < 0.03] *= 20
        series.append(times)
    assert share_steady(series) >= 0.9


@fast
@given(seeds, lengths, st.floats(0.3, 5))
def test_a_decaying_start_is_not_steady(seed: int, count: int, excess: float) -> None:
    decay = excess * np.exp(-np.arange(count) / (count / 2))
    assert not is_steady(noise(seed, count, 0.005) * (1 + decay))


@pytest.mark.parametrize("count", [30, 45, 100, 400])
@pytest.mark.parametrize("place", [0.5, 0.6, 0.7])
@pytest.mark.parametrize("change", [0.8, 1.2])
def test_a_step_in_level_is_not_steady(count: int, place: float, change: float) -> None:
    level = np.where(np.arange(count) < place * count, 1.0, change)
    assert share_steady([noise(seed, count) * level for seed in range(100)]) <= 0.1


def test_a_start_that_is_over_does_not_count() -> None:
    series = []
    for seed in range(200):
        times = noise(seed, 100)
        times[:20] *= 3
        series.append(times)
    assert share_steady(series) >= 0.9


def test_a_trend_that_is_smaller_than_anybody_needs_is_none() -> None:
    assert is_steady(np.linspace(1.0, 1.005, 200))
    assert not is_steady(np.linspace(1.0, 1.05, 200))


@pytest.mark.parametrize("count", range(5))
def test_a_few_steps_show_nothing(count: int) -> None:
    assert not is_steady(np.ones(count))


@fast
@given(
    st.integers(1, 8), st.integers(2, 50), st.lists(st.floats(-1e4, 1e4), min_size=8, max_size=8)
)
def test_workers_that_keep_step_have_rounds_of_one_step(
    num_workers: int, steps: int, clocks: list[float]
) -> None:
    rounds = np.repeat(np.arange(1, steps + 1), num_workers) * 0.01
    workers = np.tile(np.arange(num_workers), steps)
    times = round_times(workers, rounds + np.asarray(clocks)[workers], num_workers)
    np.testing.assert_allclose(times, np.full(steps - 1, 0.01), atol=1e-9)


def test_a_round_of_dealt_steps_is_as_many_steps_as_there_are_workers() -> None:
    # The first makes three steps while the second makes one: two steps in half the slow one's time.
    fast_ends, slow_ends = np.arange(31) * 1.0, np.arange(11) * 3.0
    workers = np.repeat([0, 1], [31, 11])
    times = round_times(workers, np.concatenate([fast_ends, slow_ends]), 2)
    assert np.mean(times) == pytest.approx(1.5, abs=0.1)
