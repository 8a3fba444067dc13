"""The order of a sweep: random, repeatable, interleaved; and its points, each kept once."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.sweep import Sweep, expand
from ps_allreduce.errors import UserError
from ps_allreduce.experiment import Experiment, Profile
from ps_allreduce.strategies import Strategy
from tests.examples import fast
from tests.fakes import make_experiment


def points(count: int, repetitions: int = 3) -> tuple[Experiment, ...]:
    profile = Profile(name="p", repetitions=repetitions)
    return tuple(
        make_experiment(Strategy.NO_COMMUNICATION, n + 1, profile=profile) for n in range(count)
    )


def order(seed: int, count: int = 8, repetitions: int = 3) -> list[tuple[int, int]]:
    sweep = Sweep(name="s", points=points(count, repetitions), seed=seed)
    return [(run.repetition, run.experiment.num_workers) for run in sweep.runs()]


def test_the_same_seed_gives_the_same_order() -> None:
    assert order(seed=1) == order(seed=1)


def test_the_order_stays_the_same_in_every_version() -> None:
    # Resuming relies on nothing here, but a published seed must give the published order.
    assert [workers for _, workers in order(seed=1)[:8]] == [2, 6, 5, 3, 8, 1, 4, 7]


def test_another_seed_gives_another_order() -> None:
    assert order(seed=1) != order(seed=2)


@fast
@given(st.integers(0, 1 << 32), st.integers(1, 10), st.integers(1, 4))
def test_every_point_comes_once_per_block(seed: int, count: int, repetitions: int) -> None:
    runs = order(seed, count, repetitions)
    assert [repetition for repetition, _ in runs] == sorted(r for r, _ in runs)
    assert Counter(runs) == {(r, n + 1): 1 for r in range(repetitions) for n in range(count)}


def test_blocks_are_shuffled_differently() -> None:
    runs = order(seed=1)
    blocks = {tuple(n for r, n in runs if r == repetition) for repetition in range(3)}
    assert len(blocks) == 3
    assert tuple(range(1, 9)) not in blocks


def test_a_point_with_fewer_repetitions_is_left_out_of_later_blocks() -> None:
    mixed = (*points(1, repetitions=3), *points(2, repetitions=1)[1:])
    runs = Sweep(name="s", points=mixed, seed=1).runs()
    assert Counter(run.experiment.num_workers for run in runs) == {1: 3, 2: 1}


def test_a_sweep_without_points_is_refused() -> None:
    with pytest.raises(UserError, match="sweep compare has no point"):
        Sweep(name="compare", points=(), seed=1)


def test_all_combinations_are_made_in_order() -> None:
    made = expand(
        {"strategy": [Strategy.NO_COMMUNICATION, Strategy.ALLREDUCE], "workers": [1, 2]},
        lambda strategy, workers: make_experiment(strategy, workers),
    )
    assert [(point.strategy, point.num_workers) for point in made] == [
        (Strategy.NO_COMMUNICATION, 1),
        (Strategy.NO_COMMUNICATION, 2),
        (Strategy.ALLREDUCE, 1),
        (Strategy.ALLREDUCE, 2),
    ]


def test_points_that_come_out_alike_are_kept_once() -> None:
    made = expand({"workers": [1, 2, 3]}, lambda workers: make_experiment(Strategy.SINGLE, workers))
    assert len(made) == 1


def test_excluded_combinations_are_left_out() -> None:
    made = expand(
        {"workers": [1, 2, 3]},
        lambda workers: None if workers == 2 else make_experiment(Strategy.ALLREDUCE, workers),
    )
    assert [point.num_workers for point in made] == [1, 3]
