"""Whether the steps of a run kept one speed: labels, stalls and second humps."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from analysis.data.rows import row_of
from analysis.derive.steadiness import (
    Stalls,
    Steadiness,
    label_of,
    main_hump,
    second_hump,
    stalls_of,
    steadiness_of,
)
from analysis.derive.step_parts import parts_of
from ps_allreduce.point.accelerators import Distribution, Jitter
from ps_allreduce.point.strategies import AnyStrategy, AsynchronousServers, SynchronousServers
from ps_allreduce.record.step_table import Floats, Phase, StepTable, compute_metrics, concatenate
from tests.fakes import make_experiment, make_record, make_steps

FLAT, WARMING_UP = Steadiness.FLAT, Steadiness.WARMING_UP
SLOWING_DOWN, UNSTEADY = Steadiness.SLOWING_DOWN, Steadiness.UNSTEADY


@pytest.mark.parametrize(
    ("stretches", "label"),
    [
        ([(100, 40)], FLAT),
        ([(102, 20), (100, 20)], FLAT),
        ([(101, 12), (105, 3), (100, 25)], FLAT),
        ([(130, 8), (100, 32)], WARMING_UP),
        ([(150, 5), (120, 5), (100, 30)], WARMING_UP),
        ([(100, 20), (120, 20)], SLOWING_DOWN),
        ([(150, 5), (100, 20), (120, 15)], SLOWING_DOWN),
        ([(100, 34), (120, 6)], UNSTEADY),
        ([(100, 8), (130, 8), (100, 8), (130, 8), (100, 8)], UNSTEADY),
    ],
)
@pytest.mark.parametrize("noise", [0.0, 0.01])
def test_labels_follow_the_level_of_the_steps(
    stretches: list[tuple[int, int]], label: Steadiness, noise: float
) -> None:
    levels = np.concatenate([np.full(count, float(level)) for level, count in stretches])
    random = np.random.default_rng(7)
    assert label_of(levels * (1 + random.normal(0.0, noise, len(levels)))) is label


def test_noise_alone_is_flat() -> None:
    random = np.random.default_rng(3)
    labels = [label_of(1 + random.normal(0.0, 0.02, 40)) for _ in range(200)]
    assert labels.count(FLAT) >= 195


@pytest.mark.parametrize("share", [0.1, 0.2, 0.3, 0.5])
def test_steps_of_two_lengths_in_random_order_are_flat(share: float) -> None:
    random, labels = np.random.default_rng(4), []
    for _ in range(100):
        steps = np.where(random.random(100) < share, 1.7, 1.0) * random.lognormal(0.0, 0.02, 100)
        labels.append(steadiness_of(steps_of(steps), meets=False))
    assert labels.count(FLAT) >= 85


def test_a_run_is_labelled_from_the_measured_steps_of_all_workers() -> None:
    # The warm-up is slow, and one worker is twice as slow as the other: both are no change.
    phases = [Phase.WARMUP] * 10 + [Phase.MEASURED] * 60
    for slow_end, label in ((1.0, FLAT), (1.3, SLOWING_DOWN)):
        durations = [5.0] * 10 + [1.0] * 30 + [slow_end] * 30
        ends = [np.cumsum(durations), 2 * np.cumsum(durations)]
        workers = [make_steps(number, list(each), phases) for number, each in enumerate(ends)]
        assert steadiness_of(concatenate(workers), meets=False) is label
    assert steadiness_of(make_steps(0, list(range(20)), phases[:20]), meets=False) is None
    assert steadiness_of(make_steps(0, [1.0] * 70, phases), meets=False) is None


@pytest.mark.parametrize(("count", "least_flat"), [(8, None), (20, None), (24, 90), (100, 90)])
def test_a_step_that_all_workers_share_counts_once(count: int, least_flat: int | None) -> None:
    random, labels = np.random.default_rng(5), []
    for _ in range(100):
        shared = random.lognormal(0.0, 0.03, count)
        labels.append(steadiness_of(steps_of(*[shared] * 8), meets=True))
        assert labels[-1] == steadiness_of(steps_of(shared), meets=False)
    if least_flat is None:
        assert set(labels) == {None}
    else:
        assert labels.count(FLAT) >= least_flat


@pytest.mark.parametrize("every", [7, 25])
def test_a_single_step_that_is_late_is_no_change(every: int) -> None:
    late = np.where(np.arange(100) % every == 3, 3.0, 1.0)
    assert steadiness_of(steps_of(late), meets=False) is FLAT
    assert steadiness_of(steps_of(late, late), meets=True) is FLAT


def steps_of(*workers: Floats) -> StepTable:
    """Steps of workers that lasted so long, after two that were not measured."""
    phases = [Phase.FIRST, Phase.WARMUP]
    return concatenate(
        [
            make_steps(
                number,
                [0.1, 0.2, *(0.2 + np.cumsum(each))],
                phases + [Phase.MEASURED] * len(each),
            )
            for number, each in enumerate(workers)
        ]
    )


def stalls(steps: StepTable, strategy: type[AnyStrategy] = SynchronousServers) -> Stalls:
    workers = len(np.unique(steps.worker))
    return stalls_of(parts_of(make_experiment(strategy, workers), steps))


def lossy(count: int = 200, every: int = 4, late_s: float = 0.2) -> Floats:
    """Steps of 100 ms with a little noise, every so many of which waits for a timer."""
    random = np.random.default_rng(5)
    late = np.where(np.arange(count) % every == 0, late_s, 0.0)
    return np.asarray(0.1 * random.lognormal(0.0, 0.1, count) + late)


def test_a_stall_that_all_workers_share_counts_once() -> None:
    alone, shared = stalls(steps_of(lossy())), stalls(steps_of(*[lossy()] * 4))
    assert shared == alone
    assert alone.hump_s == pytest.approx(0.1, rel=0.05)
    assert alone.stalled_s == pytest.approx(0.2 / 4, rel=0.05)
    # In turn: one worker is late in this step, all others in the next one.
    by_turns = stalls(steps_of(lossy(), np.roll(lossy(), 1)))
    assert by_turns.stalled_s == pytest.approx(alone.stalled_s, rel=0.02)


def test_a_stall_is_as_long_as_the_timers_of_the_network() -> None:
    parts = parts_of(make_experiment(SynchronousServers, 1), steps_of(lossy()))
    assert stalls_of(parts, 0.1).stalled_s == stalls_of(parts).stalled_s > 0
    assert stalls_of(parts, 0.4).stalled_s == 0


def test_steps_that_vary_much_are_late_without_a_stall() -> None:
    random = np.random.default_rng(2)
    for step_s in (0.1, 1.0, 10.0):
        found = stalls(steps_of(step_s * random.lognormal(0.0, 0.1, 400)))
        assert found.stalled_s < 0.001 * step_s
    assert stalls(steps_of(lossy(late_s=0.1))).stalled_s == 0.0


def test_workers_that_do_not_meet_have_humps_of_their_own() -> None:
    both = steps_of(lossy(), lossy(late_s=0.0) + 0.4)
    apart = stalls(both, AsynchronousServers)
    # Only the first worker stalls; it ends first, so the window holds some 75 steps of the other.
    share = 200 / np.isfinite(both.end[both.end <= both.end[both.worker == 0].max()]).sum()
    assert apart.stalled_s == pytest.approx(0.05 * share, rel=0.1)
    assert apart.second_hump_s is not None


HUMPS: dict[str, Callable[[np.random.Generator, int], Floats]] = {
    "normal": lambda random, count: 1 + 0.2 * random.normal(size=count),
    "slightly skewed": lambda random, count: random.lognormal(0.0, 0.1, count),
    "skewed": lambda random, count: random.lognormal(0.0, 0.3, count),
    "very skewed": lambda random, count: random.lognormal(0.0, 0.6, count),
    "gamma": lambda random, count: random.gamma(4.0, 0.25, count),
    "exponential": lambda random, count: 0.5 + random.exponential(0.5, count),
    "a few late": lambda random, count: (
        1 + 0.05 * random.normal(size=count) + 3 * (random.random(count) < 0.02)
    ),
}


@pytest.mark.parametrize("name", list(HUMPS))
@pytest.mark.parametrize("count", [100, 400])
def test_one_hump_is_hardly_ever_taken_for_two(name: str, count: int) -> None:
    random = np.random.default_rng(11)
    found = [
        second_hump(steps, main_hump(steps)[0])
        for steps in (step_s * HUMPS[name](random, count) for step_s in (0.1, 0.3, 1.0) * 100)
    ]
    assert sum(each is not None for each in found) <= 3


@pytest.mark.parametrize("distribution", list(Distribution))
@pytest.mark.parametrize("variation", [0.1, 0.3])
def test_jitter_of_emulated_accelerators_is_one_hump(
    distribution: Distribution, variation: float
) -> None:
    steps = np.arange(100)
    for seed in range(50):
        jitter = Jitter(distribution=distribution, variation=variation, seed=seed)
        slowest = np.max([jitter.factors(worker, steps) for worker in range(4)], axis=0)
        found = stalls(steps_of(*[0.05 + 0.1 * slowest] * 4))
        assert found.second_hump_s is None
        assert found.stalled_s < 0.01 * found.hump_s


@pytest.mark.parametrize("share", [0.15, 0.3, 0.5])
@pytest.mark.parametrize("count", [100, 400])
def test_two_humps_are_found_with_strays_between_them(share: float, count: int) -> None:
    random, found = np.random.default_rng(3), []
    for _ in range(100):
        kind = random.random(count)
        steps = np.where(kind < share, 0.3, 0.1) * random.lognormal(0.0, 0.1, count)
        steps[kind > 0.96] = random.uniform(0.1, 0.5, (kind > 0.96).sum())
        found.append(second_hump(steps, 0.1))
    told = [each for each in found if each is not None]
    assert len(told) >= 95
    assert np.median(told) == pytest.approx(0.3, rel=0.1)


@pytest.mark.parametrize(("count", "told"), [(99, False), (100, True)])
def test_short_windows_have_no_humps(count: int, told: bool) -> None:
    steps = steps_of(lossy(count), lossy(count))
    metrics = compute_metrics(steps, 32)
    row = row_of(make_record(metrics=metrics), "here", steps)
    assert ("stalled_s" in row) is ("hump_s" in row) is told
