from __future__ import annotations

import numpy as np
import pytest

from analysis.derive.steadiness import Steadiness, label_of, steadiness_of
from ps_allreduce.record.step_table import Phase, concatenate
from tests.fakes import make_steps

FLAT, WARMING_UP = Steadiness.FLAT, Steadiness.WARMING_UP
SLOWING_DOWN, UNSTEADY = Steadiness.SLOWING_DOWN, Steadiness.UNSTEADY


@pytest.mark.parametrize(
    ("stretches", "label"),
    [
        ([(100, 40)], FLAT),
        ([(102, 20), (100, 20)], FLAT),
        ([(130, 8), (100, 32)], WARMING_UP),
        ([(150, 5), (120, 5), (100, 30)], WARMING_UP),
        ([(100, 20), (120, 20)], SLOWING_DOWN),
        ([(150, 5), (100, 10), (120, 25)], SLOWING_DOWN),
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


def test_a_run_is_labelled_from_the_measured_steps_of_all_workers() -> None:
    # The warm-up is slow, and one worker is twice as slow as the other: both are no change.
    phases = [Phase.WARMUP] * 10 + [Phase.MEASURED] * 60
    for slow_end, label in ((1.0, FLAT), (1.3, SLOWING_DOWN)):
        durations = [5.0] * 10 + [1.0] * 30 + [slow_end] * 30
        ends = [np.cumsum(durations), 2 * np.cumsum(durations)]
        workers = [make_steps(number, list(each), phases) for number, each in enumerate(ends)]
        assert steadiness_of(concatenate(workers)) is label
    assert steadiness_of(make_steps(0, list(range(20)), phases[:20])) is None
    assert steadiness_of(make_steps(0, [1.0] * 70, phases)) is None
