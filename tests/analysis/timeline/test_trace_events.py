"""Trace events of made-up runs: what viewers need, and that nothing is left out or made up."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given

from analysis.timeline.trace_events import lanes_of, trace_of
from analysis.timeline.traced import TracedRun, Way, limits_of, ways_of
from ps_allreduce.point.strategies import AllReduce, Single, StockAllReduce, SynchronousServers
from ps_allreduce.point.wire import Wire
from ps_allreduce.record.step_table import Phase
from tests.analysis.timeline.tables import (
    BEGIN,
    ROWS,
    events_of,
    record_of,
    steps_of,
    traced_runs,
)
from tests.examples import fast
from tests.fakes import make_steps, no_events
from tests.trace_events import check_trace, counts, wanted_flows


@given(traced_runs())
@fast
def test_any_trace_can_be_read_and_holds_every_step_and_event(run: TracedRun) -> None:
    trace = trace_of(run)
    check_trace(trace)
    slices = [event for event in trace["traceEvents"] if event["ph"] == "X"]
    assert sum(event["cat"] == "step" for event in slices) == len(run.steps)
    has_servers = run.record.experiment.strategy.uses_servers
    wanted = wanted_flows(run.events, acknowledged=has_servers)
    if has_servers:  # no single server has all rows
        of_rows = sum(each.of_rows for each in run.record.messages)
        wanted[1] -= of_rows * len(run.steps) * bool(len(run.events.time))
    if run.communicates:
        assert counts(trace, "stf") == wanted
        assert counts(trace, "i") == [wanted[1]]
    else:
        assert counts(trace, "stfi") == [0, 0, 0, wanted[0]]


@given(traced_runs())
@fast
def test_the_way_of_any_message_is_in_order_and_within_its_step(run: TracedRun) -> None:
    limits = limits_of(run.steps)
    ways = ways_of(run)
    assert len(ways) == (len(run.events.time) // 3 if run.communicates else 0)
    for way in ways:
        begin, end = limits[way.worker, way.step]
        assert begin <= way.ready <= way.turn <= way.acknowledged <= way.back <= end


#: Start, pulled, input, loss, last gradient and end of a step, seconds.
STEP = np.asarray([[[0.0, 0.001, 0.003, 0.010, 0.030, 0.060]]])


def messages(*moments: tuple[float, float, float]) -> Any:
    """Ready, pushed and pulled of each message, as a table has them."""
    return np.asarray([[[(pulled, ready, pushed) for ready, pushed, pulled in moments]]])


def shown(run: TracedRun, phase: str) -> list[tuple[str, int, int]]:
    """Name, begin and length of the events of a phase."""
    events = [event for event in trace_of(run)["traceEvents"] if event["ph"] == phase]
    return [(event["name"], event["ts"], event.get("dur", 0)) for event in events]


def sent(*moments: tuple[float, float, float], **settings: Any) -> TracedRun:
    """One step of one worker with servers."""
    record = record_of(SynchronousServers, 1, len(moments), **settings)
    run = TracedRun.of(record, steps_of(1, 1, STEP), events_of(messages(*moments)))
    assert run is not None
    return run


def test_a_step_has_its_parts_inside_and_a_message_its_halves() -> None:
    run = sent((0.015, 0.020, 0.050))
    assert shown(run, "X") == [
        ("step 7", 0, 60_000),
        ("input wait", 1_000, 2_000),
        ("forward", 3_000, 7_000),
        ("backward", 10_000, 20_000),
        ("exchange", 30_000, 30_000),
        ("bucket 0", 15_000, 35_000),
        ("to ps:0", 15_000, 5_000),
        ("waits for its value", 20_000, 30_000),
    ]
    assert shown(run, "s") == [("bucket 0", 15_000, 0)]
    assert shown(run, "t") == [("bucket 0", 19_999, 0)]
    assert shown(run, "f") == [("bucket 0", 49_999, 0)]
    assert shown(run, "i") == [("bucket 0 of worker:0 acknowledged", 20_000, 0)]


def test_rows_are_fetched_first_and_under_way_until_all_are_applied() -> None:
    run = sent((0.015, 0.020, 0.050), (0.025, 0.045, 0.001), wire=Wire(in_flight=1), **ROWS)
    slices = shown(run, "X")
    assert slices[1:3] == [("fetch rows", 0, 1_000), ("input wait", 1_000, 2_000)]
    assert slices[-1] == ("rows", 25_000, 20_000)
    assert shown(run, "s")[1] == ("rows", 25_000, 0)
    late = replace(run, steps=replace(run.steps, pulled=run.steps.end + 0.001))
    assert shown(late, "X")[1] == ("fetch rows", 0, 60_000)


def test_a_message_says_what_it_carries_and_where_it_goes() -> None:
    events = trace_of(sent((0.015, 0.020, 0.050), (0.016, 0.021, 0.051)))["traceEvents"]
    (bucket,) = [each for each in events if each["name"] == "bucket 1" and each["ph"] == "X"]
    carried = {"bytes": 8, "variables": ["v1"], "server": "ps:1"}
    assert bucket["args"] == {"step": 7, "waited_us": 0, **carried}
    (step,) = [each for each in events if each.get("cat") == "step"]
    assert step["args"] == {"step": 7, "loss": 0.5}


def test_a_message_is_under_way_when_one_before_it_to_its_server_is_back() -> None:
    # The first and the third go to one server, the second to the other.
    early = [(0.015, 0.020, 0.050), (0.015, 0.020, 0.040), (0.016, 0.051, 0.058)]
    turns = [way.turn - BEGIN for way in ways_of(sent(*early, wire=Wire(in_flight=1)))]
    assert turns == pytest.approx([0.015, 0.015, 0.050], abs=1e-6)
    turns = [way.turn - BEGIN for way in ways_of(sent(*early, wire=Wire(in_flight=0)))]
    assert turns == pytest.approx([0.015, 0.015, 0.016], abs=1e-6)
    every = [(0.015, 0.020, 0.030), *[(0.015, 0.020, 0.055)] * 3, (0.015, 0.035, 0.058)]
    turns = [way.turn - BEGIN for way in ways_of(sent(*every, wire=Wire(in_flight=2)))]
    assert turns == pytest.approx([0.015, 0.015, 0.015, 0.015, 0.030], abs=1e-6)


def test_a_value_that_was_noted_late_is_back_when_the_step_ends() -> None:
    run = sent((0.015, 0.020, 0.0601))
    assert shown(run, "f") == [("bucket 0", 59_999, 0)]
    assert shown(run, "X")[5] == ("bucket 0", 15_000, 45_000)


def test_a_collective_has_one_slice_for_a_message() -> None:
    record = record_of(AllReduce, 1, 1, bytes_per_pack=0)
    events = events_of(messages((0.015, 0.050, 0.050)))
    run = TracedRun.of(record, steps_of(1, 1, STEP), events)
    assert run is not None
    assert shown(run, "X")[5:] == [("gradient 0", 15_000, 35_000)]
    assert shown(run, "s") == [("gradient 0", 15_000, 0)]
    assert shown(run, "t") == []
    assert shown(run, "f") == [("gradient 0", 49_999, 0)]


def test_with_host_aggregation_nobody_knows_who_acknowledges() -> None:
    run = sent((0.015, 0.020, 0.050), host_aggregation=True)
    assert shown(run, "X")[5:] == [("bucket 0", 15_000, 35_000)]
    assert shown(run, "t") == shown(run, "i") == []


def test_where_nothing_is_sent_gradients_are_moments() -> None:
    record = record_of(Single, 1, 0)
    run = TracedRun.of(record, steps_of(1, 1, STEP), events_of(messages((0.015, 0.015, 0.015))))
    assert run is not None
    assert shown(run, "i") == [("gradient ready", 15_000, 0)]
    assert ways_of(run) == []


def test_where_nobody_sees_into_a_step_it_has_no_parts() -> None:
    record = record_of(StockAllReduce, 1, 0)
    run = TracedRun.of(record, steps_of(1, 1, STEP, seen=False), no_events())
    assert run is not None
    assert shown(run, "X") == [("step 7", 0, 60_000)]


def test_a_run_without_traced_steps_has_no_trace() -> None:
    steps = make_steps(0, [1, 2], [Phase.FIRST, Phase.MEASURED])
    assert TracedRun.of(record_of(Single, 1, 0), steps, no_events()) is None


def test_messages_that_overlap_have_lanes_of_their_own() -> None:
    def way(worker: int, turn: float, back: float) -> Way:
        moments = {"ready": turn, "turn": turn, "acknowledged": back, "back": back}
        return Way(worker=worker, step=0, number=0, **moments)

    ways = [way(0, 0.0, 2.0), way(0, 1.0, 3.0), way(0, 2.0, 4.0), way(1, 1.0, 2.0)]
    assert lanes_of(ways) == [1, 2, 1, 1]
