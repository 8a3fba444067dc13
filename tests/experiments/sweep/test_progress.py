"""What a log says of a sweep that goes on, by a clock that a test moves."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from experiments.sweep import progress
from experiments.sweep.progress import SweepProgress
from ps_allreduce.point.strategies import AsynchronousServers
from tests.analysis.learners import trained
from tests.fakes import FakeClock, make_record


def test_a_log_tells_the_time_left_after_every_run(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = FakeClock()
    monkeypatch.setattr(progress, "monotonic", clock)
    log = io.StringIO()
    with SweepProgress(Console(file=log, soft_wrap=True, highlight=False)) as shown:
        shown.begin(11, 0)
        for _ in range(11):
            clock.now += 20.0
            shown.finish(make_record(), "")
    first, *lines = log.getvalue().splitlines()
    assert first == "11 runs to make; each ends with a line."
    ends = [line.partition("images/s")[2] for line in lines]
    assert ends[0] == "; about 3 min left"
    assert ends[8:] == ["; about 40 s left", "; about 20 s left", ""]


def test_a_training_is_named_by_its_seed_and_says_when_it_reached_its_target() -> None:
    log = io.StringIO()
    with SweepProgress(Console(file=log, soft_wrap=True, highlight=False)) as shown:
        for record in trained(AsynchronousServers, [3.25, None], 100.0):
            shown.finish(record, "")
    reached, missed = log.getvalue().splitlines()
    assert "learning rate 0.01, seed 1 #2" in reached
    assert reached.endswith(", target after 3.25 s")
    assert "seed 2" in missed
    assert missed.endswith(", target missed")
