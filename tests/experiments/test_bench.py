"""What benchmarks compute and keep, without running any."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from experiments.bench import busiest_bits, read_bench, summarise_overhead, transport_points
from ps_allreduce.network import EmulatedNetwork
from ps_allreduce.runner.results import OverheadResult
from ps_allreduce.strategies import Strategy
from tests.fakes import make_experiment


def test_recording_costs_the_median_ratio() -> None:
    overhead = OverheadResult(
        recorded_s=(1.0, 2.0, 3.0), bare_s=(1.0, 1.0, 1.0), steps_per_stretch=7
    )
    summary = summarise_overhead(overhead)
    assert (summary["ratio"], summary["low"], summary["high"]) == (2.0, 1.0, 3.0)
    assert (summary["pairs"], summary["steps_per_stretch"]) == (3, 7)


@pytest.mark.parametrize(
    ("strategy", "workers", "share"),
    [(Strategy.ALLREDUCE, 2, 1.0), (Strategy.ALLREDUCE, 4, 1.5), (Strategy.PS_SYNC, 3, 3.0)],
)
def test_bytes_on_the_busiest_link(strategy: Strategy, workers: int, share: float) -> None:
    assert busiest_bits(make_experiment(strategy, workers), 1000) == 8000 * share


def test_transports_are_measured_between_two_workers_on_hosts_of_their_own() -> None:
    points = transport_points(EmulatedNetwork(num_hosts=3, bits_per_s=1e9))
    assert [point.num_workers for point in points] == [2, 2, 2]
    assert {point.transport for point in points} == {"grpc"}
    assert all(point.spread is not None for point in points)


@pytest.mark.parametrize("content", ["", "[1]", "{", '{"bring_up_s": {"ssh": 1.5}}'])
def test_numbers_of_other_launchers_are_kept_if_they_can_be_read(
    content: str, tmp_path: Path
) -> None:
    path = tmp_path / "bench.json"
    path.write_text(content)
    kept = json.loads(content) if content.startswith('{"') else {}
    assert read_bench(path) == kept
    assert read_bench(tmp_path / "none") == {}
