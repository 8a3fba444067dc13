"""Timings of hosts whose clocks differ are put on one clock."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ps_allreduce.record.steps import (
    EventTable,
    Phase,
    StepTable,
    compute_metrics,
    concatenate,
    shift_clocks,
)
from tests.examples import fast
from tests.fakes import make_steps, no_events

PHASES = [Phase.FIRST, Phase.WARMUP, *[Phase.MEASURED] * 4]

ENDS = {0: [1.0, 2.0, 3.0, 4.0, 5.0, 6.0], 1: [1.25, 2.25, 3.25, 4.25, 5.25, 6.25]}

MOMENTS = ("start", "pulled", "end", "batches", "releases")


def both() -> StepTable:
    """Two workers that are not quite in step, with releases of emulated gradients."""
    tables = [
        make_steps(worker, ends, PHASES, first_start=ends[0] - 1, pull_s=0.1, compute_s=0.6)
        for worker, ends in ENDS.items()
    ]
    steps = concatenate(tables)
    return replace(steps, releases=steps.end[:, np.newaxis] - [[0.2, 0.1]])


def events() -> EventTable:
    whole = np.asarray([0, 1, 1], dtype=np.int64)
    return EventTable(
        worker=whole, step=whole, kind=whole, tensor=whole, time=np.asarray([1.0, 2.0, 3.0])
    )


def ahead(table: StepTable, offsets: list[float]) -> StepTable:
    """The table as it would be noted by workers whose clocks are ahead."""
    rows = np.asarray(offsets)[table.worker]
    changes = {}
    for name in MOMENTS:
        column = getattr(table, name)
        changes[name] = column + rows.reshape((-1,) + (1,) * (column.ndim - 1))
    return replace(table, **changes)


def test_every_moment_is_moved_by_its_workers_clock() -> None:
    steps, moved = shift_clocks(ahead(both(), [0.0, 12.5]), events(), [0.0, 12.5])
    for field in fields(StepTable):
        np.testing.assert_allclose(getattr(steps, field.name), getattr(both(), field.name))
    assert moved.time.tolist() == [1.0, 2.0 - 12.5, 3.0 - 12.5]


@fast
@given(st.lists(st.floats(-1000, 1000), min_size=2, max_size=2))
def test_figures_do_not_depend_on_how_wrong_clocks_are(offsets: list[float]) -> None:
    steps, _ = shift_clocks(ahead(both(), offsets), no_events(), offsets)
    wanted, found = compute_metrics(both(), 16), compute_metrics(steps, 16)
    assert found.steps_per_worker == wanted.steps_per_worker
    for name in ("examples_per_sec", "compute_s", "communication_s", "input_wait_s"):
        np.testing.assert_allclose(getattr(found, name), getattr(wanted, name), rtol=1e-6)


def test_rows_in_any_order_keep_to_their_worker() -> None:
    order = np.random.default_rng(1).permutation(len(both()))
    steps, _ = shift_clocks(ahead(both().select(order), [3.0, -4.0]), no_events(), [3.0, -4.0])
    np.testing.assert_allclose(steps.of_worker(1).end, both().of_worker(1).end)


def test_a_run_without_releases_or_events_is_no_exception() -> None:
    plain = make_steps(0, [1, 2], [Phase.FIRST, Phase.MEASURED])
    steps, moved = shift_clocks(plain, no_events(), [1.0])
    assert steps.releases.shape == (2, 0)
    assert len(moved.time) == 0
