"""Factors of steps have the stated distribution, and follow from seed, worker and step."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from ps_allreduce.point.accelerators import GOLDEN, QUANTILES, Distribution, Jitter, _mixed
from ps_allreduce.point.workload import EmulatedCompute

STEPS = np.arange(20_000)


def jitter(name: str = "lognormal", variation: float = 0.1, seed: int = 1) -> Jitter:
    return Jitter(distribution=Distribution(name), variation=variation, seed=seed)


@pytest.mark.parametrize("c", [0.01, 0.1, 0.5])
def test_quantiles_are_those_of_the_distribution(c: float) -> None:
    middles = (np.arange(QUANTILES) + 0.5) / QUANTILES
    log_sigma = np.sqrt(np.log1p(c**2))
    wanted = {
        "lognormal": stats.lognorm.ppf(middles, log_sigma, scale=np.exp(-(log_sigma**2) / 2)),
        "gamma": stats.gamma.ppf(middles, 1 / c**2, scale=c**2),
    }
    for name, values in wanted.items():
        found = jitter(name, c).quantiles
        assert found.tolist() == pytest.approx(values.tolist(), rel=1e-3)
        assert found.mean() == pytest.approx(1.0)
        assert found.std() == pytest.approx(c, rel=0.005)


@pytest.mark.parametrize("name", list(Distribution))
def test_workers_and_steps_draw_independently(name: str) -> None:
    drawn = np.stack([jitter(name).factors(worker, STEPS) for worker in range(4)])
    assert drawn.mean(axis=1).tolist() == pytest.approx([1.0] * 4, abs=0.003)
    assert drawn.std(axis=1).tolist() == pytest.approx([0.1] * 4, abs=0.003)
    assert np.abs(np.corrcoef(drawn) - np.eye(4)).max() < 0.03
    assert abs(np.corrcoef(drawn[0, 1:], drawn[0, :-1])[0, 1]) < 0.03
    assert abs(np.corrcoef(drawn[0], jitter(name, seed=2).factors(0, STEPS))[0, 1]) < 0.03


def test_a_draw_does_not_depend_on_which_steps_are_asked_for() -> None:
    some = jitter().factors(3, np.array([7, 19_999, 0]))
    assert some.tolist() == jitter().factors(3, STEPS)[[7, 19_999, 0]].tolist()


def test_the_hash_is_splitmix64() -> None:
    # The first output for the seed 1234567, as published implementations give it.
    assert _mixed(np.array([1234567 + GOLDEN], np.uint64)).tolist() == [6457827717110365317]


def test_a_worker_takes_its_factor_times_what_it_drew() -> None:
    compute = EmulatedCompute(forward_s=0.1, backward_s=0.1, factors=(1, 3), jitter=jitter())
    wanted = 3 * jitter().factors(1, STEPS)
    assert compute.scales(1, STEPS).tolist() == pytest.approx(wanted.tolist())
