"""The number of seeds follows from the spread of the first three, whoever is faster."""

from __future__ import annotations

import numpy as np
import pytest

from experiments.studies.learning import LEAST, MOST, seconds_of, seeds_wanted, spread_of
from ps_allreduce.point.strategies import AsynchronousServers, SynchronousServers
from tests.analysis.learners import trained


def test_few_seeds_decide_between_what_hardly_varies_and_more_where_it_varies_more() -> None:
    wanted = [seeds_wanted(spread) for spread in (0.01, 0.12, 0.15, 1.0)]
    assert wanted == sorted(wanted)
    assert (wanted[0], wanted[-1]) == (LEAST, MOST)
    assert LEAST < wanted[2] < MOST


def test_the_spread_is_that_of_ratios_of_equal_seeds() -> None:
    draw = np.random.default_rng(0)
    settings, seeds, noise = 200, np.exp(draw.standard_normal(3)), 0.1
    made = {
        str(number): {
            seed: float(each * np.exp(number % 7 + noise * draw.standard_normal()))
            for seed, each in enumerate(seeds)
        }
        for number in range(settings)
    }
    assert spread_of(made) == pytest.approx(2**0.5 * noise, rel=0.1)
    assert spread_of({"one": made["1"]}) is None


def test_trainings_that_miss_the_target_have_no_seconds() -> None:
    records = [
        *trained(SynchronousServers, [10.0, 11.0, 12.0], 100.0),
        *trained(AsynchronousServers, [5.0, None, 6.0], 100.0),
    ]
    synchronous, asynchronous = seconds_of(records).values()
    assert synchronous == {1: 10.0, 2: 11.0, 3: 12.0}
    assert asynchronous == {1: 5.0, 3: 6.0}
    assert spread_of(seconds_of(records)) is None
