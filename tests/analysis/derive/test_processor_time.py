"""What communication costs, and whether clocks agree, by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from analysis.derive.costs import (
    ProcessorTime,
    busy_share,
    clock_ratio,
    core_bits_per_s,
    processor_time,
    seconds_per_gigabyte,
)
from ps_allreduce.point.network import EmulatedNetwork
from ps_allreduce.point.resources import Spread
from ps_allreduce.record.records import Phases
from ps_allreduce.record.step_table import Window
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


def test_processors_were_as_busy_as_the_core_that_tasks_used_most() -> None:
    own = make_experiment(num_ps=1)
    tasks = [replace(task, cores=(0, 1)) for task in tasks_on(PLACES)]
    # Each second a worker computes for a half, and the server for a whole one, on two cores each.
    half = tuple(
        make_sample(t, cpu_s={"worker:0": t / 2, "worker:1": t / 2, "ps:0": t}) for t in (0.0, 1.0)
    )
    apart = run(own, 1.0, tasks=tuple(tasks), samples=half)
    assert busy_share(apart, WINDOW) == pytest.approx(0.5)
    together = replace(apart, tasks=tuple(replace(task, host="a", cores=(0,)) for task in tasks))
    assert busy_share(together, WINDOW) == 1.0
    assert busy_share(apart, None) is None
    assert busy_share(replace(apart, samples=()), WINDOW) is None


def test_emulated_hosts_were_as_busy_as_their_machine() -> None:
    network = EmulatedNetwork(num_hosts=2, bits_per_s=1e9)
    own = make_experiment(launcher="emulated", network=network, spread=Spread())
    record = run(own, 1.0, tasks=tasks_on(PLACES), samples=SAMPLES, machine_busy=0.7)
    assert busy_share(record, WINDOW) == 0.7
    assert busy_share(replace(record, machine_busy=None), WINDOW) is None


def test_steps_are_timed_from_outside_as_well() -> None:
    own = make_experiment(num_ps=1)
    record = run(own, 100.0, phases=Phases(measured_s=20.0))
    assert record.metrics is not None
    # The window, and three steps before it that are warm-up still.
    steps = record.metrics.measured_steps + 3
    assert clock_ratio(record) == pytest.approx(20.0 / (steps * own.global_batch / 100.0))
    assert clock_ratio(replace(record, phases=Phases())) is None
    assert clock_ratio(run(own, None)) is None
