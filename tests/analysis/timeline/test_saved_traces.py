"""What a report leaves of traced steps: a file for each point, a picture, and what tracing cost."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from analysis.data.cases import make_cases
from analysis.data.load import read_sweep
from analysis.figures.step_timeline import UNSEEN, plot_timeline, shown_runs, window_of
from ps_allreduce.point.strategies import AllReduce, AnyStrategy, StockAllReduce, SynchronousServers
from ps_allreduce.record.records import RunRecord
from ps_allreduce.record.step_table import EventTable, Phase, StepTable, concatenate
from tests.analysis.builders import cases_of, invoke, save
from tests.analysis.timeline.tables import BEGIN, events_of, record_of, steps_of
from tests.fakes import make_steps, no_events
from tests.trace_events import check_trace, counts

#: Two workers, three steps of a tenth of a second each, two messages.
STEPS = np.stack(
    [np.asarray([0.0, 0.001, 0.003, 0.02, 0.05, 0.1]) + 0.1 * step for step in range(3)]
)
MESSAGES = np.stack(
    [np.asarray([[0.07, 0.03, 0.05], [0.09, 0.04, 0.06]]) + 0.1 * step for step in range(3)]
)


def tables(seen: bool = True) -> tuple[StepTable, EventTable]:
    """Eight measured steps of 80 ms, then three traced ones of 100 ms."""
    traced = steps_of(2, 3, np.stack([STEPS, STEPS + 0.01]), seen)
    phases = [Phase.WARMUP, *[Phase.MEASURED] * 6]
    before = [
        make_steps(worker, [BEGIN - 0.64 + 0.08 * n for n in range(7)], phases) for worker in (0, 1)
    ]
    nothing = traced.batches[:0]
    before = [replace(each, batches=each.batches[:, : nothing.shape[1]]) for each in before]
    events = events_of(np.stack([MESSAGES, MESSAGES + 0.01])) if seen else no_events()
    return concatenate([*before, traced]), events


def traced_record(strategy: type[AnyStrategy], **settings: Any) -> RunRecord:
    record = record_of(strategy, 2, 0 if strategy.as_shipped else 2, **settings)
    assert record.metrics is not None
    metrics = replace(record.metrics, window_s=0.48, step_time_p50_s=0.08)
    rate = 13 * record.experiment.workload.examples_per_step / 0.48
    metrics = replace(metrics, examples_per_sec=rate, steps_per_worker=(6, 6))
    return replace(record, metrics=metrics)


def test_a_report_leaves_a_trace_for_each_point_and_says_what_tracing_cost(tmp_path: Path) -> None:
    for strategy in (SynchronousServers, AllReduce, StockAllReduce):
        steps, events = tables(seen=not strategy.as_shipped)
        save(tmp_path, traced_record(strategy), steps=steps, events=events)
    said = " ".join(invoke("report", str(tmp_path)).split())
    assert "3 traces to open at ui.perfetto.dev: timeline-*.json.gz" in said
    assert "Traced steps took 1.25 times as long as measured ones (3 launches)" in said
    names = [path.name for path in sorted(tmp_path.glob("timeline-*.json.gz"))]
    assert [name.split("-")[1] for name in names] == ["allreduce", "ps_sync", "stock_allreduce"]
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert all(name in page for name in names)
    assert "One step by strategy" in page
    assert (tmp_path / "timeline.png").exists()
    for name in names:
        trace = json.loads(gzip.decompress((tmp_path / name).read_bytes()))
        check_trace(trace)
        assert counts(trace, "s") in ([0], [2 * 3 * 2])


def test_a_report_without_traced_steps_says_nothing_of_them(tmp_path: Path) -> None:
    save(tmp_path, record_of(SynchronousServers, 2, 2))
    assert "ui.perfetto.dev" not in invoke("report", str(tmp_path))
    assert "Traced steps" not in (tmp_path / "report.html").read_text(encoding="utf-8")
    assert not list(tmp_path.glob("timeline*"))


def test_events_that_are_not_those_of_the_traced_steps_are_told(tmp_path: Path) -> None:
    steps, events = tables()
    good = traced_record(SynchronousServers)
    save(tmp_path, good, steps=steps, events=events)
    lost = EventTable(**{name: getattr(events, name)[1:] for name in EventTable.__slots__})
    save(tmp_path, replace(good, repetition=1), steps=steps, events=lost)
    said = invoke("report", str(tmp_path), exit_code=1)
    assert (
        "1-1.npz: raw timings with 35 events, not one for each of 3 moments of 2 messages" in said
    )


def test_the_picture_shows_a_step_of_median_length_and_the_steps_beside_it() -> None:
    # The first one does not count; of 0.1, 0.3 and 0.2 s it is the last.
    edges = np.asarray([0.0, 0.5, 0.6, 0.9, 1.1])
    one = np.stack([np.linspace(low, high, 6) for low, high in pairwise(edges)])
    begin, end = window_of(steps_of(2, 4, np.stack([one, one + 0.01])))
    assert (begin - BEGIN, end - BEGIN) == pytest.approx((0.9, 1.11), abs=1e-5)


def test_the_picture_has_a_panel_for_each_strategy_and_a_row_for_each_worker(
    tmp_path: Path,
) -> None:
    for strategy in (SynchronousServers, AllReduce, StockAllReduce):
        steps, events = tables(seen=not strategy.as_shipped)
        save(tmp_path, traced_record(strategy), steps=steps, events=events)
    found = read_sweep(tmp_path)
    (case,) = make_cases(found.table, found.records)
    figure = plot_timeline(case)
    assert figure is not None
    titles = [axes.get_title(loc="left") for axes in figure.axes]
    assert [title.split(",")[0] for title in titles] == ["ps_sync", "all-reduce", "stock_allreduce"]
    rows = [[label.get_text() for label in axes.get_yticklabels()] for axes in figure.axes]
    assert rows == [["worker:0", "worker:1"]] * 3
    (legend,) = figure.legends
    told = {text.get_text() for text in legend.get_texts()}
    assert told >= {"forward", "backward", "exchange", "message under way", UNSEEN}


def test_nothing_is_drawn_of_records_without_raw_timings() -> None:
    (case,) = cases_of([traced_record(SynchronousServers)])
    assert shown_runs(case) == []
    assert plot_timeline(case) is None
