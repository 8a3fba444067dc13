"""What a log says of a sweep that goes on, by a clock that a test moves."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from experiments.sweep import progress
from experiments.sweep.progress import SweepProgress
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
