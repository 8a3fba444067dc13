"""The order of a sweep: random, repeatable, interleaved; and its points, each kept once."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.sweep.sweep import Sweep, expand, job_sizes
from ps_allreduce.errors import UserError
from ps_allreduce.point.experiment import Experiment, Profile
from ps_allreduce.point.spread import Spread
from ps_allreduce.point.strategies import Strategy
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


def spread_points() -> tuple[Experiment, ...]:
    strategies = [(Strategy.SINGLE, 1), *((Strategy.ALLREDUCE, n) for n in (1, 2, 3, 4, 6))]
    return tuple(make_experiment(kind, n, spread=Spread()) for kind, n in strategies)


def test_jobs_by_size_are_powers_of_two_and_all_hosts() -> None:
    assert [job_sizes(hosts) for hosts in (1, 2, 6, 8)] == [
        (1,),
        (1, 2),
        (1, 2, 4, 6),
        (1, 2, 4, 8),
    ]


def test_every_point_is_in_the_smallest_job_that_holds_it_and_the_base_in_all() -> None:
    sweep = Sweep(name="s", points=spread_points(), seed=1, job_sizes=job_sizes(6))
    found = {
        size: {(r.experiment.strategy, r.experiment.num_workers) for r in sweep.runs_of_job(size)}
        for size in sweep.job_sizes
    }
    base, reduced = (Strategy.SINGLE, 1), Strategy.ALLREDUCE
    assert found == {
        1: {base, (reduced, 1)},
        2: {base, (reduced, 2)},
        4: {base, (reduced, 3), (reduced, 4)},
        6: {base, (reduced, 6)},
    }


def test_runs_of_one_repetition_are_of_one_job() -> None:
    sweep = Sweep(name="s", points=spread_points(), seed=1, job_sizes=job_sizes(6))
    jobs = [{run.repetition for run in sweep.runs_of_job(size)} for size in sweep.job_sizes]
    assert jobs == [{0, 1}, {1000, 1001}, {2000, 2001}, {3000, 3001}]
    assert sweep.runs() == [run for size in sweep.job_sizes for run in sweep.runs_of_job(size)]
    assert len(set(sweep.runs())) == len(sweep.runs())


def test_a_job_with_nothing_but_bases_is_left_out() -> None:
    single, *_, largest = spread_points()
    sizes = job_sizes(6)
    sweep = Sweep(name="s", points=(single, largest), seed=1, job_sizes=sizes)
    assert [bool(sweep.runs_of_job(size)) for size in sizes] == [False, False, False, True]
    alone = Sweep(name="s", points=(single,), seed=1, job_sizes=(1, 2))
    assert [len(alone.runs_of_job(size)) for size in (1, 2)] == [2, 0]


def test_a_job_of_another_size_is_refused() -> None:
    sweep = Sweep(name="s", points=spread_points(), seed=1, job_sizes=job_sizes(6))
    with pytest.raises(UserError, match=r"makes jobs of 1, 2, 4, 6 hosts .* this one has 3"):
        sweep.runs_of_job(3)
