"""What benchmarks compute and keep, without running any."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from experiments.suite.bench import read_bench, summarise_overhead
from ps_allreduce.runner.results import OverheadResult


def test_recording_costs_the_median_ratio() -> None:
    overhead = OverheadResult(
        recorded_s=(1.0, 2.0, 3.0), bare_s=(1.0, 1.0, 1.0), steps_per_stretch=7
    )
    summary = summarise_overhead(overhead)
    assert (summary["ratio"], summary["low"], summary["high"]) == (2.0, 1.0, 3.0)
    assert (summary["pairs"], summary["steps_per_stretch"]) == (3, 7)


@pytest.mark.parametrize("content", ["", "[1]", "{", '{"bring_up_s": {"ssh": 1.5}}'])
def test_numbers_of_other_launchers_are_kept_if_they_can_be_read(
    content: str, tmp_path: Path
) -> None:
    path = tmp_path / "bench.json"
    path.write_text(content)
    kept = json.loads(content) if content.startswith('{"') else {}
    assert read_bench(path) == kept
    assert read_bench(tmp_path / "none") == {}
