"""The figures of a run, worked out by hand for small tables of timings."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ps_allreduce.errors import RecordFormatError
from ps_allreduce.record.files import load_raw, save_raw
from ps_allreduce.record.step_table import (
    EventKind,
    EventTable,
    Phase,
    StepTable,
    Window,
    backward_spans,
    compute_metrics,
    compute_spans,
    concatenate,
    first_seen,
    forward_spans,
    input_spans,
    measurement_window,
    shift_clocks,
)
from tests.examples import fast
from tests.fakes import UNSEEN, make_steps, no_events, unseen

FIRST, WARMUP, MEASURED = Phase.FIRST, Phase.WARMUP, Phase.MEASURED

#: Steps of a second; the first one compiles, the second one warms up.
SIX_STEPS = [FIRST, WARMUP, MEASURED, MEASURED, MEASURED, MEASURED]


def one_worker(**spans: float) -> StepTable:
    return make_steps(0, [1, 2, 3, 4, 5, 6], SIX_STEPS, **spans)


def test_the_window_of_one_worker_holds_its_measured_steps() -> None:
    assert measurement_window(one_worker()) == Window(start=2.0, end=6.0)


def test_the_window_opens_with_the_last_warm_up_and_closes_with_the_first_worker_done() -> None:
    late = make_steps(1, [1.5, 2.5, 3.5, 4.5, 5.5, 6.5], SIX_STEPS)
    window = measurement_window(concatenate([one_worker(), late]))
    assert window == Window(start=2.5, end=6.0)
    assert window.length_s == 3.5


def test_traced_steps_are_outside_the_window() -> None:
    table = make_steps(0, [1, 2, 3, 4, 9], [FIRST, WARMUP, MEASURED, MEASURED, Phase.EVENTS])
    assert measurement_window(table) == Window(start=2.0, end=4.0)


def test_settling_steps_that_count_as_warm_up_move_the_window() -> None:
    table = make_steps(0, [1, 2, 3, 4, 5, 6], [FIRST, *[WARMUP] * 3, MEASURED, MEASURED])
    metrics = compute_metrics(table, 10)
    assert (metrics.warmup_steps, metrics.measured_steps) == (4, 2)
    assert metrics.window_s == 2.0
    assert metrics.examples_per_sec == 10.0


@pytest.mark.parametrize(
    ("phases", "missing"),
    [([FIRST, WARMUP], "measured"), ([MEASURED, MEASURED], "warm-up")],
)
def test_a_worker_without_one_of_the_phases_is_named(phases: list[Phase], missing: str) -> None:
    table = concatenate([one_worker(), make_steps(3, [1, 2], phases)])
    with pytest.raises(ValueError, match=rf"worker:3 .*{missing}"):
        measurement_window(table)


def test_a_synchronous_step_is_split_into_its_parts() -> None:
    metrics = compute_metrics(one_worker(pull_s=0.1, wait_s=0.05, compute_s=0.6), 32)
    assert metrics.examples_per_sec == pytest.approx(32.0)
    assert metrics.step_time_p50_s == pytest.approx(1.0)
    assert metrics.step_time_p95_s == pytest.approx(1.0)
    assert metrics.input_wait_s == pytest.approx(0.05)
    assert metrics.compute_s == pytest.approx(0.6)
    assert (metrics.forward_s, metrics.backward_s) == pytest.approx((0.2, 0.4))
    assert metrics.communication_s == pytest.approx(1.0 - 0.6 - 0.05)
    assert metrics.warmup_steps == 2
    assert metrics.measured_steps == 4
    assert metrics.window_s == pytest.approx(4.0)
    assert metrics.steps_per_worker == (4,)


def test_workers_add_up() -> None:
    both = concatenate([one_worker(compute_s=0.5), make_steps(1, [1, 2, 3, 4, 5, 6], SIX_STEPS)])
    metrics = compute_metrics(both, 32)
    assert metrics.examples_per_sec == pytest.approx(64.0)
    assert metrics.steps_per_worker == (4, 4)
    assert metrics.compute_s == pytest.approx(0.25)
    in_any_order = both.select(np.random.default_rng(1).permutation(len(both)))
    assert compute_metrics(in_any_order, 32) == metrics


def test_an_asynchronous_worker_that_is_twice_as_fast_makes_twice_the_steps() -> None:
    slow = make_steps(0, [2, 4, 6, 8, 10], [FIRST, WARMUP, *[MEASURED] * 3])
    fast = make_steps(1, range(1, 13), [FIRST, *[WARMUP] * 3, *[MEASURED] * 8])
    metrics = compute_metrics(concatenate([slow, fast]), 10)
    # The window is 4 to 10: 3 steps of the slow worker, 6 of the fast one.
    assert metrics.window_s == 6.0
    assert metrics.steps_per_worker == (3, 6)
    assert metrics.examples_per_sec == pytest.approx(15.0)
    assert metrics.step_time_p50_s == 1.0
    assert metrics.step_time_p95_s == 2.0
    assert metrics.warmup_steps == 2
    assert metrics.measured_steps == round((3 + 8) / 2)


def test_a_step_that_reaches_over_an_end_counts_by_its_part() -> None:
    # Opens at 2.5 amid a step of worker 0, closes at 6 amid a step of worker 1.
    late = make_steps(1, [1.5, 2.5, 3.5, 4.5, 5.5, 6.5], SIX_STEPS)
    metrics = compute_metrics(concatenate([one_worker(), late]), 7)
    assert metrics.steps_per_worker == (3, 3)
    assert metrics.examples_per_sec == pytest.approx(2 * 7)


def test_time_between_steps_belongs_to_the_next_step() -> None:
    table = replace(one_worker(), start=one_worker().start + 0.25)
    assert compute_metrics(table, 1).step_time_p50_s == pytest.approx(1.0)


def test_workers_that_never_measure_together_have_no_figures() -> None:
    late = make_steps(1, [11, 12, 13, 14, 15, 16], SIX_STEPS, first_start=10)
    with pytest.raises(ValueError, match="no whole step"):
        compute_metrics(concatenate([one_worker(), late]), 1)


def one_step(batches: list[tuple[float, float, float]], pulled: float) -> StepTable:
    """A single step that starts at 0."""
    moments = np.asarray([batches], dtype=np.float64)
    row = make_steps(0, [10.0], [MEASURED])
    return replace(row, pulled=np.asarray([pulled]), batches=moments)


@pytest.mark.parametrize(
    ("batches", "pulled", "forward_s", "backward_s", "wait_s"),
    [
        # (input ready, loss ready, last gradient ready) of each batch
        pytest.param([(0, 1, 3)], 0, 1, 2, 0, id="input was there"),
        pytest.param([(2, 3, 5)], 0, 1, 2, 2, id="waited for input"),
        pytest.param([(2, 3, 5)], 4, 0, 1, 0, id="input came before the parameters"),
        pytest.param([(-5, 1, 3)], 1, 0, 2, 0, id="input was read ahead"),
        pytest.param([(0, 1, 3), (0, 4, 6)], 0, 2, 4, 0, id="two batches without a gap"),
        pytest.param([(0, 1, 3), (4, 5, 7)], 0, 2, 4, 1, id="second batch waited for input"),
        pytest.param([(1, 2, 4), (6, 7, 9)], 1, 2, 4, 2, id="both, after a pull"),
        pytest.param([(0, 1, 3)], 4, 0, 0, 0, id="gradients before the last parameter"),
        pytest.param([(0, 3.5, 3)], 0, 3, 0, 0, id="loss noted after the last gradient"),
    ],
)
def test_spans_of_a_step(
    batches: list[tuple[float, float, float]],
    pulled: float,
    forward_s: float,
    backward_s: float,
    wait_s: float,
) -> None:
    table = one_step(batches, pulled)
    assert forward_spans(table).tolist() == pytest.approx([forward_s])
    assert backward_spans(table).tolist() == pytest.approx([backward_s])
    assert compute_spans(table).tolist() == pytest.approx([forward_s + backward_s])
    assert input_spans(table).tolist() == pytest.approx([wait_s])


def some_events() -> EventTable:
    whole = np.asarray([0, 1], dtype=np.int64)
    kind = np.asarray([EventKind.PULLED, EventKind.PUSHED], dtype=np.int64)
    return EventTable(
        worker=whole, step=whole, kind=kind, tensor=whole, time=np.asarray([0.0, 0.5])
    )


@pytest.mark.parametrize("events", [some_events(), no_events()], ids=["events", "none"])
def test_raw_timings_are_read_back_as_they_were(tmp_path: Path, events: EventTable) -> None:
    steps = one_worker(pull_s=0.1, compute_s=0.3)
    save_raw(tmp_path / "raw.npz", steps, events)
    steps_again, events_again = load_raw(tmp_path / "raw.npz")
    assert_same(steps, steps_again)
    assert_same(events, events_again)


def assert_same(before: StepTable | EventTable, after: StepTable | EventTable) -> None:
    for field in fields(before):
        old, new = getattr(before, field.name), getattr(after, field.name)
        np.testing.assert_array_equal(old, new, strict=True)


def test_tables_of_several_tasks_become_one() -> None:
    assert len(concatenate([one_worker(), one_worker()])) == 12
    assert len(concatenate([some_events(), no_events(), some_events()]).time) == 4


def good_bytes(tmp_path: Path) -> bytes:
    save_raw(tmp_path / "good.npz", one_worker(), some_events())
    return (tmp_path / "good.npz").read_bytes()


def archive(**arrays: Any) -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


def single_array() -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, np.zeros(3))
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        pytest.param(b"", "", id="empty"),
        pytest.param(b"not an archive", "", id="text"),
        pytest.param(b"PK\x03\x04 and no more", "", id="beginning of an archive"),
        pytest.param(single_array(), "", id="one array"),
        pytest.param(archive(something=np.zeros(3)), "", id="other arrays"),
        pytest.param(
            archive(steps_worker=np.asarray([{}], dtype=object)), "OBJECT array", id="pickled"
        ),
        pytest.param(None, "No such file", id="missing"),
    ],
)
def test_what_is_no_raw_file_is_refused(tmp_path: Path, content: bytes | None, reason: str) -> None:
    if content is not None:
        (tmp_path / "raw.npz").write_bytes(content)
    with pytest.raises(RecordFormatError, match=rf"raw.npz: raw timings cannot be read.*{reason}"):
        load_raw(tmp_path / "raw.npz")


@pytest.mark.parametrize(
    ("name", "edit", "reason"),
    [
        ("end", lambda column: column.reshape(-1, 1), "end holds float64 in 2 dimensions"),
        ("end", lambda column: column.astype(str), "end holds <U32 in 1 dimensions"),
        ("phase", lambda column: column.astype(float), "phase holds float64"),
        ("batches", lambda column: column[:, :, :2], "batches is of shape"),
    ],
)
def test_a_column_of_another_type_or_shape_is_refused(
    tmp_path: Path, name: str, edit: Callable[[Any], Any], reason: str
) -> None:
    path = tmp_path / "raw.npz"
    save_raw(path, one_worker(), some_events())
    with np.load(path) as good:
        arrays = dict(good)
    np.savez(path, **arrays | {f"steps_{name}": edit(arrays[f"steps_{name}"])})
    with pytest.raises(RecordFormatError, match=reason):
        load_raw(path)


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9, 0.999])
def test_a_truncated_file_is_refused(tmp_path: Path, share: float) -> None:
    good = good_bytes(tmp_path)
    (tmp_path / "raw.npz").write_bytes(good[: int(len(good) * share)])
    with pytest.raises(RecordFormatError):
        load_raw(tmp_path / "raw.npz")


def test_a_damaged_byte_is_refused_or_harmless(tmp_path: Path) -> None:
    good = good_bytes(tmp_path)
    path = tmp_path / "raw.npz"
    refused = 0
    for position in range(0, len(good), 41):
        path.write_bytes(good[:position] + bytes([good[position] ^ 0x55]) + good[position + 1 :])
        try:
            load_raw(path)
        except RecordFormatError:
            refused += 1
    assert refused > 10


#: Of two workers whose clocks differ.
ENDS = {0: [1.0, 2.0, 3.0, 4.0, 5.0, 6.0], 1: [1.25, 2.25, 3.25, 4.25, 5.25, 6.25]}

MOMENTS = ("start", "pulled", "end", "batches", "releases")


def both() -> StepTable:
    """Two workers that are not quite in step, with releases of emulated gradients."""
    tables = [
        make_steps(worker, ends, SIX_STEPS, first_start=ends[0] - 1, pull_s=0.1, compute_s=0.6)
        for worker, ends in ENDS.items()
    ]
    steps = concatenate(tables)
    return replace(steps, releases=steps.end[:, np.newaxis] - [[0.2, 0.1]])


def three_events() -> EventTable:
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
    steps, moved = shift_clocks(ahead(both(), [0.0, 12.5]), three_events(), [0.0, 12.5])
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


def test_a_step_has_begun_when_its_gradients_are_ready_however_late_its_clock_was_read() -> None:
    later = np.asarray([[2.0, 1.5, 3.0], [np.nan, np.nan, 6.0]])
    assert first_seen(np.asarray([1.0, 5.0]), later).tolist() == [1.0, 5.0]
    assert first_seen(np.asarray([1.75, 7.0]), later).tolist() == [1.5, 6.0]


def test_rows_in_any_order_keep_to_their_worker() -> None:
    order = np.random.default_rng(1).permutation(len(both()))
    steps, _ = shift_clocks(ahead(both().select(order), [3.0, -4.0]), no_events(), [3.0, -4.0])
    np.testing.assert_allclose(steps.of_worker(1).end, both().of_worker(1).end)


def test_the_parts_of_steps_that_nobody_sees_into_are_unknown() -> None:
    steps, _ = shift_clocks(unseen(one_worker(compute_s=0.6)), no_events(), [1.0])
    assert asdict(compute_metrics(steps, 16)) == asdict(compute_metrics(one_worker(), 16)) | UNSEEN


def test_a_run_without_releases_or_events_is_no_exception() -> None:
    plain = make_steps(0, [1, 2], [Phase.FIRST, Phase.MEASURED])
    steps, moved = shift_clocks(plain, no_events(), [1.0])
    assert steps.releases.shape == (2, 0)
    assert len(moved.time) == 0
