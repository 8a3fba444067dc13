"""Every strategy against its bound, with a launcher that starts nothing."""

from __future__ import annotations

import io
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console

from experiments.suite.wire_bench import Row, render_wire, run_wire_bench
from experiments.suite.wire_grid import Point, wire_grid
from experiments.suite.wire_measure import CpuTime, core_bits_per_s, cpu_per_step, measure
from launchers.protocol import LaunchedRun
from ps_allreduce.errors import UserError
from ps_allreduce.point.network import EmulatedNetwork
from ps_allreduce.point.spread import Spread
from ps_allreduce.point.strategies import Strategy
from ps_allreduce.record.records import LinkRecord, PlacementUsed, Status, TaskRecord
from tests.fakes import (
    METRICS,
    FakeLauncher,
    bad_run,
    make_sample,
    ok_run,
)

NETWORK = EmulatedNetwork(num_hosts=6, bits_per_s=1e9)

GRID = wire_grid(NETWORK)

SILENT = Console(quiet=True)


def a_point(strategy: Strategy, workers: int = 2, **wanted: Any) -> Point:
    """The first of the grid."""
    found = (
        point
        for point in GRID
        if point.experiment.strategy is strategy
        and point.experiment.num_workers == workers
        and all(getattr(point, name) == value for name, value in wanted.items())
    )
    return next(found)


def a_task(name: str, host: str, cpu_s: float | None = 2.0) -> TaskRecord:
    return TaskRecord(task=name, host=host, address=f"{host}:1", cores=(0,), pid=1, cpu_s=cpu_s)


def a_run(images_per_sec: float = 4.0, **changes: Any) -> LaunchedRun:
    """Two workers and a server on hosts of their own, links of 1 Gbit/s, 25 MB of gradients."""
    settings: dict[str, Any] = {
        "metrics": replace(METRICS, images_per_sec=images_per_sec),
        "gradient_bytes": 25_000_000,
        "links": (
            LinkRecord(source="a", target="b", bits_per_s=0.9e9, round_trip_s=1e-4),
            LinkRecord(source="b", target="a", bits_per_s=1e9, round_trip_s=1e-4),
        ),
        "tasks": (a_task("worker:0", "a"), a_task("worker:1", "b"), a_task("ps:0", "c")),
        "placement": PlacementUsed(
            shards=(), variables=(), bytes_per_server=(25_000_000,), max_over_mean=1.0
        ),
        "machine_busy": 0.5,
    }
    return ok_run(**(settings | changes))


def test_the_grid_holds_every_strategy_against_every_shape() -> None:
    counts = {p.purpose: 0 for p in GRID if p.tuned}
    for point in GRID:
        counts[point.purpose] += point.tuned
    assert counts == {
        "allreduce": 8,
        "ps_sync": 24,
        "ps_async": 24,
        "allreduce, overlap": 4,
        "ps_sync, overlap": 8,
    }
    assert sum(not point.tuned for point in GRID) == 6
    assert len({point.experiment.experiment_id for point in GRID}) == len(GRID)
    assert all((point.target is None) != point.tuned for point in GRID)


def test_fast_links_have_no_targets_but_servers_that_share_a_host() -> None:
    grid = wire_grid(replace(NETWORK, bits_per_s=25e9))
    assert not any(point.target for point in grid)
    shared = [p.experiment for p in grid if p.experiment.spread == Spread(ps_per_host=2)]
    assert {own.num_ps for own in shared} == {2}
    assert sum(not point.tuned for point in grid) == 6
    assert len({point.experiment.experiment_id for point in grid}) == len(grid)


def test_servers_that_share_a_host_are_told_from_those_that_do_not() -> None:
    rows = [Row(point) for point in wire_grid(replace(NETWORK, bits_per_s=None))]
    shown = {(row.to_json()["num_ps"], row.to_json()["ps_per_host"]) for row in rows}
    assert shown == {(0, 0), (1, 1), (2, 1), (2, 2), (4, 1)}


def test_points_fit_on_six_hosts_and_take_a_few_seconds() -> None:
    for point in GRID:
        assert point.experiment.network == NETWORK
        assert point.experiment.profile.measured_steps <= 10
        assert point.experiment.profile.deadline_s < 400


def test_an_accelerator_computes_for_as_long_as_the_links_need() -> None:
    point = a_point(Strategy.PS_SYNC, 2, purpose="ps_sync, overlap")
    emulated = point.experiment.workload.emulated
    assert emulated is not None
    assert point.compute_s == pytest.approx(0.4)
    assert emulated.backward_s == pytest.approx(2 * emulated.forward_s)
    assert emulated.forward_s + emulated.backward_s == pytest.approx(0.4)


def test_a_step_is_held_against_the_rate_that_was_measured() -> None:
    measured = measure(a_point(Strategy.PS_SYNC), a_run(4.0))
    assert measured.link_bits_per_s == 1e9
    assert measured.step_s == 0.5
    assert measured.bound_s == pytest.approx(0.4)
    assert measured.fraction == pytest.approx(0.8)


def test_the_bound_of_a_ring_needs_no_servers() -> None:
    tasks = (a_task("worker:0", "a"), a_task("worker:1", "b"))
    run = a_run(tasks=tasks, placement=None)
    assert measure(a_point(Strategy.ALLREDUCE), run).bound_s == pytest.approx(0.2)


def test_computation_that_hides_communication_is_part_of_the_bound() -> None:
    point = a_point(Strategy.PS_SYNC, purpose="ps_sync, overlap")
    assert measure(point, a_run(3.0)).bound_s == pytest.approx(0.4 / 3 + 0.4)


def test_processor_time_of_the_window_is_preferred() -> None:
    samples = tuple(
        make_sample(t, cpu_s={"worker:0": t, "worker:1": t, "ps:0": 2 * t}) for t in (0.0, 1.0)
    )
    # The window is 0.2 to 0.6 s: two steps of both workers.
    found = cpu_per_step(a_run(samples=samples), 2, 0.2)
    assert found is not None
    assert found.over == "window"
    assert found.by_host == pytest.approx({"a": 0.2, "b": 0.2, "c": 0.4})
    found = cpu_per_step(a_run(), 2, 0.2)
    assert found is not None
    assert (found.over, set(found.by_host.values())) == ("run", {2.0 / 3})
    unknown = (a_task("worker:0", "a", None),)
    assert cpu_per_step(a_run(tasks=unknown), 2, 0.2) is None


def test_the_rate_that_a_core_keeps_up_with_is_that_of_the_busiest_host() -> None:
    cpu = CpuTime(by_host={"a": 0.5, "b": 1.0, "chief": 3.0}, over="run")
    crossings = {"a": (1e9, 0.0), "b": (1e9, 0.5e9), "chief": (0.0, 0.0)}
    assert core_bits_per_s(crossings, cpu) == 8e9
    assert core_bits_per_s(crossings, CpuTime(by_host={"chief": 1.0}, over="run")) is None


def test_processor_time_is_held_against_tensorflows_own() -> None:
    stock = a_point(Strategy.PS_SYNC, tuned=False)
    tuned = next(point for point in GRID if point.rival_of(stock))
    assert tuned.num_tensors == stock.num_tensors
    assert not stock.rival_of(stock)
    half = tuple(replace(task, cpu_s=1.0) for task in a_run().tasks)
    rows = [
        Row(tuned, [measure(tuned, a_run(tasks=half))]),
        Row(stock, [measure(stock, a_run())]),
    ]
    last = render_wire(rows)[-1]
    assert last.startswith("ps_sync: one core per host keeps up with links of ")
    assert last.endswith("; processor time per byte 0.50 of TensorFlow's own")


def test_rows_are_saved_one_by_one_and_none_is_missing() -> None:
    points = [a_point(Strategy.PS_SYNC), a_point(Strategy.PS_SYNC, purpose="ps_sync, overlap")]
    saved: list[list[dict[str, Any]]] = []
    launcher = FakeLauncher(script=[a_run(4.9), bad_run(Status.FAILED)])
    rows = run_wire_bench(launcher, points, saved.append, SILENT)
    first, last = saved
    assert [row["reason"] for row in first] == ["", "not run"]
    assert [row["met"] for row in first] == [True, False]
    assert "killed by SIGKILL" in last[1]["reason"]
    assert last[0]["fraction_of_bound"] == pytest.approx(0.98)
    assert last[0]["gradient_bytes"] == 25_000_000
    assert last[0]["settings"]["in_flight"] == points[0].experiment.wire.in_flight
    text = "\n".join(render_wire(rows))
    assert "ps_sync: 1 of 1 rows reach 0.93; worst 0.980 (2 workers, 1 ps dedicated" in text
    assert "ps_sync, overlap: 0 of 1 rows reach 0.85; 1 came to nothing" in text


def test_repetitions_are_made_in_rounds_and_give_a_spread() -> None:
    points = [a_point(Strategy.PS_SYNC)] * 2
    launcher = FakeLauncher(script=[a_run(4.9), a_run(), a_run(4.7), a_run()])
    rows = run_wire_bench(launcher, points, lambda _: None, SILENT, repetitions=2)
    row = rows[0].to_json()
    assert (row["fraction_low"], row["fraction_high"]) == (pytest.approx(0.94), pytest.approx(0.98))
    assert (row["repetitions"], row["fraction_of_bound"]) == (2, pytest.approx(0.96))


def test_one_failed_repetition_is_a_miss() -> None:
    row = Row(a_point(Strategy.PS_SYNC), [measure(a_point(Strategy.PS_SYNC), a_run(4.9)), "lost"])
    assert (row.met, row.reason) == (False, "lost")


def test_what_is_faster_than_its_links_is_not_believed() -> None:
    launcher = FakeLauncher(script=[a_run(6.0), a_run(6.0)])
    (row,) = run_wire_bench(launcher, [a_point(Strategy.PS_SYNC)], lambda _: None, SILENT)
    assert row.met is False
    assert "1.200 of the bound cannot be" in row.reason


def test_links_that_were_mismeasured_once_are_measured_again() -> None:
    launcher = FakeLauncher(script=[a_run(6.0), a_run(4.9)])
    (row,) = run_wire_bench(launcher, [a_point(Strategy.PS_SYNC)], lambda _: None, SILENT)
    assert row.reason == ""
    assert row.fraction == pytest.approx(0.98)


def test_what_does_not_fit_is_kept_with_its_reason() -> None:
    launcher = FakeLauncher(refuses=lambda _: UserError("6 hosts are needed but there are 2."))
    (row,) = run_wire_bench(launcher, GRID[:1], lambda _: None, SILENT)
    assert row.reason == "6 hosts are needed but there are 2."
    assert launcher.launched == []


def test_columns_are_named_before_the_first_row() -> None:
    console = Console(file=io.StringIO(), width=300)
    launcher = FakeLauncher(script=[a_run(4.9)])
    run_wire_bench(launcher, [a_point(Strategy.PS_SYNC)], lambda _: None, console)
    file = console.file
    assert isinstance(file, io.StringIO)
    lines = [line.rstrip() for line in file.getvalue().splitlines() if line.strip()]
    heading = next(line for line in lines if "fraction" in line)
    row = next(line for line in lines if "ps_sync" in line)
    assert lines.index(heading) < lines.index(row)
    assert row.index("ps_sync") == heading.index("strategy")
    assert row.index("0.980") + len("0.980") == heading.index("fraction") + len("fraction")


def test_rows_for_contrast_are_neither_met_nor_missed() -> None:
    stock = a_point(Strategy.PS_SYNC, tuned=False)
    row = Row(stock, [measure(stock, a_run(2.0))])
    assert row.met is None
    text = "\n".join(render_wire([row]))
    assert "TensorFlow's own settings" in text
    assert "rows reach" not in text


def test_the_operator_ends_the_bench() -> None:
    launcher = FakeLauncher(script=[bad_run(Status.INTERRUPTED)])
    with pytest.raises(KeyboardInterrupt):
        run_wire_bench(launcher, GRID[:2], lambda _: None, SILENT)
    assert len(launcher.launched) == 1
