"""What communication and recording cost, by hand."""

from __future__ import annotations

import pytest

from analysis.derive.costs import (
    ProcessorTime,
    core_bits_per_s,
    processor_time,
    seconds_per_gigabyte,
)
from ps_allreduce.record.steps import Window
from tests.analysis.builders import run, tasks_on
from tests.fakes import make_experiment, make_sample

PLACES = {"worker:0": "a", "worker:1": "b", "ps:0": "c"}
#: Two steps of both workers, of twelve in all.
WINDOW = Window(start=0.2, end=0.6)
SAMPLES = tuple(
    make_sample(t, cpu_s={"worker:0": t, "worker:1": t, "ps:0": 2 * t}) for t in (0.0, 1.0)
)


def test_processor_time_of_the_window_is_preferred() -> None:
    record = run(make_experiment(num_ps=1), 1.0, tasks=tasks_on(PLACES), samples=SAMPLES)
    cost = processor_time(record, WINDOW, 12, step_s=0.2)
    assert cost is not None
    assert cost.over == "window"
    assert cost.by_host == pytest.approx({"a": 0.2, "b": 0.2, "c": 0.4})
    assert seconds_per_gigabyte(cost, 2, 25_000_000) == pytest.approx(16.0)


def test_without_samples_it_is_that_of_the_run() -> None:
    own = make_experiment(num_ps=1)
    cost = processor_time(run(own, 1.0, tasks=tasks_on(PLACES)), WINDOW, 12, step_s=0.2)
    assert cost is not None
    # 3 s of every task over six steps.
    assert (cost.over, set(cost.by_host.values())) == ("run", {0.5})
    unknown = run(own, 1.0, tasks=tasks_on(PLACES, cpu_s=None))
    assert processor_time(unknown, WINDOW, 12, step_s=0.2) is None


def test_the_rate_that_a_core_keeps_up_with_is_that_of_the_busiest_host() -> None:
    cost = ProcessorTime(by_host={"a": 0.5, "b": 1.0, "chief": 3.0}, over="run")
    traffic = {"a": (1e9, 0.0), "b": (1e9, 0.5e9), "chief": (0.0, 0.0)}
    assert core_bits_per_s(traffic, cost) == 8e9
    assert core_bits_per_s(traffic, ProcessorTime(by_host={"chief": 1.0}, over="run")) is None
