"""Gradients travel whole where processors are the limit and that saves them time."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.planning.exchange import choose_exchange
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.resources import Spread
from ps_allreduce.point.strategies import (
    AllReduce,
    AnyStrategy,
    AsynchronousServers,
    SynchronousServers,
)
from ps_allreduce.point.strategies.stated import StrategySettings
from ps_allreduce.record.choices import ExchangeChoice, ExchangeMode, exchange_sentence
from tests.examples import fast

REDUCED = ExchangeChoice(
    model="SmallCNN",
    strategy="allreduce",
    mode=ExchangeMode.WHOLE,
    num_workers=2,
    cores=2,
    bits_per_s=9.43e9,
    network_s=0.001,
    processor_s=0.02,
    saved_s=0.01,
)
SERVED = replace(REDUCED, strategy="ps_sync", num_ps=3)

#: Of fewer bytes than servers a link carries less than a byte, which counts as none.
SIZES = st.lists(st.integers(64, 10**8), min_size=1, max_size=50)
KINDS = st.sampled_from([AllReduce, SynchronousServers, AsynchronousServers])


def chosen(
    kind: type[AnyStrategy],
    sizes: list[int],
    cores: int = 2,
    rate: float = math.inf,
    workers: int = 4,
) -> ExchangeMode:
    settings = StrategySettings(num_ps=workers).only(kind.understands())
    point = Experiment(strategy=kind.of(settings), num_workers=workers, spread=Spread())
    return choose_exchange(point, sizes, cores, rate).mode


@fast
@given(KINDS, SIZES, st.integers(1, 64), st.floats(1e6, 1e11), st.integers(2, 16))
def test_faster_links_and_fewer_cores_never_ask_for_buckets(
    kind: type[AnyStrategy], sizes: list[int], cores: int, rate: float, workers: int
) -> None:
    if chosen(kind, sizes, cores, rate, workers) is ExchangeMode.WHOLE:
        assert chosen(kind, sizes, cores, 10 * rate, workers) is ExchangeMode.WHOLE
        assert chosen(kind, sizes, max(1, cores // 2), rate, workers) is ExchangeMode.WHOLE
    assert chosen(kind, sizes, cores, 1.0, workers) is ExchangeMode.BUCKETS


@pytest.mark.parametrize("kind", [SynchronousServers, AsynchronousServers])
def test_servers_get_many_small_tensors_in_buckets_and_large_ones_whole(
    kind: type[AnyStrategy],
) -> None:
    assert chosen(kind, [25_000] * 1000) is ExchangeMode.BUCKETS
    assert chosen(kind, [2_500_000] * 10) is ExchangeMode.WHOLE


@pytest.mark.parametrize("count", [10, 1000])
def test_one_pack_is_worth_it_in_a_large_ring_and_for_small_models(count: int) -> None:
    sizes = [25_000_000 // count] * count
    assert chosen(AllReduce, sizes, workers=4) is ExchangeMode.WHOLE
    assert chosen(AllReduce, sizes, workers=2) is ExchangeMode.BUCKETS
    assert chosen(AllReduce, [600_000], workers=2) is ExchangeMode.WHOLE


def test_a_sentence_says_what_was_chosen_and_from_what() -> None:
    alike = exchange_sentence([REDUCED])
    assert alike == "Gradients travel in one pack (auto: links of 9.4gbit, 2 cores, 2 workers)."
    bucketed = replace(SERVED, mode=ExchangeMode.BUCKETS)
    assert exchange_sentence([REDUCED, bucketed, SERVED]) == (
        "Gradients travel in one pack (allreduce) and in buckets (ps_sync) and unbucketed "
        "(ps_sync) (auto: links of 9.4gbit, 2 cores, 2 workers, 3 servers)."
    )
    here = replace(REDUCED, model="ResNet50", bits_per_s=None, cores=1)
    assert exchange_sentence([REDUCED, here]) == (
        "Gradients travel in one pack (auto: links of 9.4gbit, 2 cores, 2 workers; no links that "
        "limit, 1 core, 2 workers)."
    )
