"""The order of a sweep, random, repeatable and interleaved; what was decided for it holds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.stats.comparisons import comparisons
from experiments.sweep.definition import (
    LAUNCHES,
    Choices,
    read_choices,
    save_definition,
    set_aside_damaged,
)
from experiments.sweep.sweep import Profile, Sweep, job_sizes
from ps_allreduce.errors import RecordFormatError, UserError
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.placement import Policy
from ps_allreduce.point.resources import LayoutKind, Spread
from ps_allreduce.point.sides import main_points
from ps_allreduce.point.strategies import (
    AllReduce,
    AsynchronousServers,
    NoCommunication,
    Single,
    StockAllReduce,
    SynchronousServers,
)
from ps_allreduce.point.wire import Wire, WireType
from ps_allreduce.record.files import DEFINITION, read_json
from tests.analysis.builders import case_of, runs, times, with_wire
from tests.examples import fast
from tests.experiments.sweeps import SWEEP
from tests.fakes import make_experiment


def points(count: int) -> tuple[Experiment, ...]:
    return tuple(make_experiment(NoCommunication, n + 1) for n in range(count))


def order(seed: int, count: int = 8, repetitions: int = 3) -> list[tuple[int, int]]:
    profile = Profile(name="p", repetitions=repetitions)
    sweep = Sweep(name="s", points=points(count), profile=profile, seed=seed)
    return [(run.repetition, run.experiment.num_workers) for run in sweep.runs()]


def test_a_seed_gives_an_order_of_its_own_to_which_repetitions_are_added() -> None:
    # Resuming relies on nothing here, but a published seed must give the published order.
    assert [workers for _, workers in order(seed=1)[:8]] == [2, 6, 5, 3, 8, 1, 4, 7]
    assert order(seed=1) != order(seed=2)
    assert order(seed=1, repetitions=10)[:24] == order(seed=1, repetitions=3)


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


def test_a_sweep_without_points_is_refused() -> None:
    with pytest.raises(UserError, match="sweep compare has no point"):
        Sweep(name="compare", points=(), profile=TWICE, seed=1)


TWICE = Profile(name="twice", repetitions=2)


def spread_points() -> tuple[Experiment, ...]:
    strategies = [(Single, 1), *((AllReduce, n) for n in (1, 2, 3, 4, 6))]
    return tuple(make_experiment(kind, n, spread=Spread()) for kind, n in strategies)


BY_SIZE = Sweep(name="s", points=spread_points(), profile=TWICE, seed=1, job_sizes=job_sizes(6))


def test_jobs_by_size_are_powers_of_two_and_all_hosts() -> None:
    sizes = [job_sizes(hosts) for hosts in (1, 2, 6, 8)]
    assert sizes == [(1,), (1, 2), (1, 2, 4, 6), (1, 2, 4, 8)]


def test_every_point_is_in_the_smallest_job_that_holds_it_and_the_base_in_all() -> None:
    jobs = {
        size: {
            (type(r.experiment.strategy), r.experiment.num_workers)
            for r in BY_SIZE.runs_of_job(size)
        }
        for size in BY_SIZE.job_sizes
    }
    base, reduced = (Single, 1), AllReduce
    assert jobs == {
        1: {base, (reduced, 1)},
        2: {base, (reduced, 2)},
        4: {base, (reduced, 3), (reduced, 4)},
        6: {base, (reduced, 6)},
    }


def test_runs_of_one_repetition_are_of_one_job() -> None:
    jobs = [{run.repetition for run in BY_SIZE.runs_of_job(size)} for size in BY_SIZE.job_sizes]
    assert jobs == [{0, 1}, {1000, 1001}, {2000, 2001}, {3000, 3001}]
    assert BY_SIZE.runs() == [
        run for size in BY_SIZE.job_sizes for run in BY_SIZE.runs_of_job(size)
    ]
    assert len(set(BY_SIZE.runs())) == len(BY_SIZE.runs())


def test_a_job_with_nothing_but_bases_is_left_out() -> None:
    single, *_, largest = spread_points()
    sizes = job_sizes(6)
    sweep = Sweep(name="s", points=(single, largest), profile=TWICE, seed=1, job_sizes=sizes)
    assert [bool(sweep.runs_of_job(size)) for size in sizes] == [False, False, False, True]
    alone = Sweep(name="s", points=(single,), profile=TWICE, seed=1, job_sizes=(1, 2))
    assert [len(alone.runs_of_job(size)) for size in (1, 2)] == [2, 0]


def test_a_job_of_another_size_is_refused() -> None:
    with pytest.raises(UserError, match=r"makes jobs of 1, 2, 4, 6 hosts .* this one has 3"):
        BY_SIZE.runs_of_job(3)


SERVED = make_experiment(SynchronousServers, 2)

COMPARED = (
    make_experiment(Single, 1),
    *(make_experiment(AllReduce, n) for n in (1, 2)),
    make_experiment(AsynchronousServers, 2),
    SERVED,
)


@fast
@given(st.integers(0, 1 << 32), st.integers(1, 12))
def test_time_beyond_the_fewest_launches_goes_to_the_main_comparison(
    seed: int, launches: int
) -> None:
    sweep = Sweep(name="s", points=COMPARED, profile=TWICE, seed=seed, main_launches=launches)
    assert main_points(COMPARED) == [make_experiment(AllReduce, 2), SERVED]
    made = Counter(run.experiment for run in sweep.runs())
    for point in COMPARED[1:]:
        assert made[point] == (max(2, launches) if point in main_points(COMPARED) else 2)


def test_the_main_comparison_is_at_equal_hosts_if_there_are_any() -> None:
    rings = [make_experiment(AllReduce, n, spread=Spread()) for n in (2, 4)]
    apart = make_experiment(SynchronousServers, 2, spread=Spread(), layout=LayoutKind.DEDICATED)
    assert main_points([*rings, apart]) == [rings[1], apart]
    assert main_points([rings[0], apart]) == [rings[0], apart]


def test_a_sweep_launches_more_often_what_its_report_compares() -> None:
    half = Wire(gradients=WireType.FLOAT16)
    points = [own for each in (RING, SERVED) for own in (each, with_wire(each, half))]
    points += [EVEN, make_experiment(AllReduce, 4), make_experiment(StockAllReduce, 2)]
    main = comparisons(case_of(*(runs(own, times(1.0)) for own in points))).main
    assert main is not None
    compared = [point.experiment for side in main.sides for point in side.points]
    assert set(main_points(points)) == set(compared) == {RING, SERVED, EVEN}


@pytest.mark.parametrize("launches", [2, 3, 5, 9])
def test_the_sentinel_runs_at_the_start_in_the_middle_and_at_the_end(launches: int) -> None:
    sweep = Sweep(name="s", points=COMPARED, profile=TWICE, seed=1, main_launches=launches)
    runs = sweep.runs()
    places = [at for at, run in enumerate(runs) if run.experiment == sweep.sentinel]
    assert places[0] == 0
    assert len(runs) - places[-1] <= 11
    assert all(later - place <= 11 for place, later in pairwise(places))


@pytest.mark.parametrize("ended", range(2, 12))
def test_a_sweep_whose_time_is_over_was_to_make_what_it_has_made(ended: int) -> None:
    whole = Sweep(name="s", points=COMPARED, profile=TWICE, seed=1, main_launches=30)
    made = [run for run in whole.runs() if run.turn < ended]
    assert replace(whole, main_launches=ended).runs() == made


def test_without_two_sides_all_points_are_the_main_comparison() -> None:
    points = tuple(make_experiment(AllReduce, n) for n in (1, 2))
    sweep = Sweep(name="s", points=points, profile=TWICE, seed=1, main_launches=5)
    assert Counter(run.experiment for run in sweep.runs()) == dict.fromkeys(points, 5)


ROUND_ROBIN, EVEN = (
    make_experiment(SynchronousServers, 2, placement=policy)
    for policy in (Policy.ROUND_ROBIN, Policy.GREEDY)
)
RING = make_experiment(AllReduce, 2)


def test_what_left_the_main_comparison_is_launched_no_more() -> None:
    points = (RING, ROUND_ROBIN, EVEN)
    left = {ROUND_ROBIN.experiment_id: 4}
    sweep = Sweep(name="s", points=points, profile=TWICE, seed=1, main_launches=6, left=left)
    assert Counter(run.experiment for run in sweep.runs()) == {RING: 6, ROUND_ROBIN: 4, EVEN: 6}


def test_both_sides_of_the_main_comparison_follow_one_another() -> None:
    points = (*COMPARED, *(make_experiment(AsynchronousServers, n) for n in range(3, 9)))
    runs = Sweep(name="s", points=points, profile=TWICE, seed=3).runs()
    for turn in range(2):
        block = [run.experiment for run in runs if run.turn == turn]
        assert abs(block.index(RING) - block.index(SERVED)) == 1


def test_only_a_sweep_with_two_sides_and_a_time_launches_them_more_often() -> None:
    often = Profile(name="p", repetitions=3, main_repetitions=6, budget_s=10.0)
    assert Sweep(name="s", points=COMPARED, profile=often, seed=1).fewest_turns == 6
    assert Sweep(name="s", points=COMPARED[:3], profile=often, seed=1).fewest_turns == 3
    stated = often.without_budget(4)
    assert Sweep(name="s", points=COMPARED, profile=stated, seed=1).fewest_turns == 4


def answer(value: int) -> Callable[[], int]:
    return lambda: value


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    """The folder of a sweep for which something was decided."""
    choices = Choices(request="asked", block="here")
    assert choices.decide("cores per worker", int, answer(4)) == 4
    assert choices.decide("numbers of workers", tuple[int, ...], lambda: (1, 2)) == (1, 2)
    assert choices.decide("best placement", Policy, lambda: Policy.GREEDY) is Policy.GREEDY
    save_definition(SWEEP, choices, tmp_path)
    return tmp_path


def test_the_order_holds_what_is_launched_in_any_case(tmp_path: Path) -> None:
    choices, longest = Choices(request="asked", block="here"), replace(SWEEP, main_launches=30)
    save_definition(longest, choices, tmp_path)
    assert len(read_json(tmp_path / DEFINITION)["order"]) == len(SWEEP.runs())
    choices.answers[LAUNCHES] = 30
    save_definition(longest, choices, tmp_path)
    assert len(read_json(tmp_path / DEFINITION)["order"]) == len(longest.runs()) == 60


@pytest.mark.parametrize("block", ["here", pytest.param(None, id="hosts are not known yet")])
def test_a_sweep_that_goes_on_is_not_decided_anew(stored: Path, block: str | None) -> None:
    assert set_aside_damaged(stored, "") == ""
    choices = read_choices(stored, "asked", block)
    assert choices.decide("cores per worker", int, answer(8)) == 4
    assert choices.decide("numbers of workers", tuple[int, ...], lambda: (1, 2, 4)) == (1, 2)
    assert choices.decide("best placement", Policy, lambda: Policy.ROUND_ROBIN) is Policy.GREEDY


@pytest.mark.parametrize(("request_", "block"), [("another", "here"), ("asked", "elsewhere")])
def test_another_request_or_block_is_decided_anew(stored: Path, request_: str, block: str) -> None:
    choices = read_choices(stored, request_, block)
    assert choices.decide("cores per worker", int, answer(8)) == 8


@pytest.mark.parametrize("text", ["", "{", "[]", '{"order": []}', '{"decided_for": 1}'])
def test_what_cannot_be_read_decides_nothing_and_is_kept(tmp_path: Path, text: str) -> None:
    (tmp_path / DEFINITION).write_text(text)
    assert read_choices(tmp_path, "asked", None).answers == {}
    assert read_choices(tmp_path / "new", "asked", None).answers == {}
    told = set_aside_damaged(tmp_path, "2026-01-02T03:04:05.678+00:00")
    (kept,) = tmp_path.iterdir()
    assert (kept.name, kept.read_text()) == (f"{DEFINITION}.damaged-202601020304056780000", text)
    assert f"is kept as {kept.name}." in told
    assert set_aside_damaged(tmp_path, "") == "", "there is none"


def test_an_answer_of_another_type_is_told_with_its_question(stored: Path) -> None:
    choices = read_choices(stored, "asked", "here")
    with pytest.raises(RecordFormatError, match=r"sweep\.json, choice 'best placement'"):
        choices.decide("best placement", int, answer(1))
