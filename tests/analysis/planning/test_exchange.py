"""Gradients travel in buckets where links are the limit, and whole where processors are."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from analysis.planning.exchange import (
    ExchangeChoice,
    ExchangeMode,
    better_mode,
    exchange_sentence,
    processor_time_s,
)
from tests.examples import fast

REDUCED = ExchangeChoice(
    model="SmallCNN",
    strategy="allreduce",
    mode=ExchangeMode.WHOLE,
    num_workers=2,
    cores=2,
    bits_per_s=9.43e9,
    network_s=0.001,
    processor_s=0.01,
)
SERVED = replace(REDUCED, strategy="ps_sync")

SECONDS = st.floats(1e-6, 100.0)


@fast
@given(SECONDS, SECONDS, st.floats(1.0, 10.0))
def test_faster_links_and_slower_processors_never_ask_for_buckets(
    network_s: float, processor_s: float, factor: float
) -> None:
    if better_mode(network_s, processor_s) is ExchangeMode.WHOLE:
        assert better_mode(network_s / factor, processor_s) is ExchangeMode.WHOLE
        assert better_mode(network_s, processor_s * factor) is ExchangeMode.WHOLE
    assert better_mode(0.0, processor_s) is ExchangeMode.WHOLE


@fast
@given(st.integers(0, 10**9), st.integers(1, 64), st.integers(1, 64))
def test_processors_need_longer_for_more_bytes_more_workers_and_fewer_cores(
    num_bytes: int, workers: int, cores: int
) -> None:
    needed = processor_time_s(num_bytes, workers, cores)
    assert 0 < needed < processor_time_s(num_bytes + 1000, workers, cores)
    assert needed < processor_time_s(num_bytes, workers + 1, cores)
    assert needed > processor_time_s(num_bytes, workers, cores + 1)


def test_a_sentence_says_what_was_chosen_and_from_what() -> None:
    alike = exchange_sentence([REDUCED])
    assert alike == "Gradients travel in one pack (auto: links of 9.4gbit, 2 cores)."
    bucketed = replace(SERVED, mode=ExchangeMode.BUCKETS)
    assert exchange_sentence([REDUCED, bucketed, SERVED]) == (
        "Gradients travel in one pack (allreduce) and in buckets (ps_sync) and unbucketed (ps_sync) "
        "(auto: links of 9.4gbit, 2 cores)."
    )
    here = replace(REDUCED, model="ResNet50", bits_per_s=None, cores=1)
    assert exchange_sentence([REDUCED, here]) == (
        "Gradients travel in one pack (auto: links of 9.4gbit, 2 cores; no links that limit, "
        "1 core)."
    )
