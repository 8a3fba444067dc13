"""Parts of steps add up to the steps, and name what took the time."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from analysis.derive.step_parts import (
    PARTS,
    PopMetrics,
    hidden_seconds,
    parts_of,
    pop_metrics,
    pop_of,
)
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.strategies import (
    AllReduce,
    AnyStrategy,
    AsynchronousServers,
    Single,
    StockAllReduce,
)
from ps_allreduce.point.workload import EmulatedCompute, Workload
from ps_allreduce.record.step_table import (
    EventTable,
    Phase,
    StepTable,
    compute_metrics,
    concatenate,
    measurement_window,
)
from tests.fakes import make_experiment, make_steps, no_events, unseen

PHASES = [Phase.FIRST, Phase.WARMUP, *[Phase.MEASURED] * 4]
ENDS = [0.1 * (step + 1) for step in range(len(PHASES))]

#: Worker 1 computes 20 ms longer, and both end their steps together.
TWO = concatenate(
    [
        make_steps(0, ENDS, PHASES, wait_s=0.01, compute_s=0.05),
        make_steps(1, ENDS, PHASES, wait_s=0.01, compute_s=0.07),
    ]
)
SYNCHRONOUS = make_experiment(AllReduce, 2)


def columns(experiment: Experiment, steps: StepTable) -> dict[str, object]:
    return parts_of(experiment, steps).columns()


@given(st.lists(st.tuples(*[st.floats(1e-4, 0.02)] * 5), min_size=6, max_size=12), st.booleans())
def test_parts_add_up_to_every_step(spans: list[tuple[float, ...]], meets: bool) -> None:
    waits, computing, rests, gaps, pulls = np.array(spans).T
    lengths = gaps + pulls + waits + computing + rests
    ends = np.cumsum(lengths)
    steps = make_steps(
        0, ends.tolist(), [Phase.FIRST, Phase.WARMUP, *[Phase.MEASURED] * (len(ends) - 2)]
    )
    start = ends - lengths + gaps
    ready = start + pulls + waits
    moments = np.stack([ready, ready + computing / 3, ready + computing], axis=1)
    steps = replace(steps, start=start, pulled=start + pulls, batches=moments[:, np.newaxis])
    both = concatenate(
        [steps, replace(steps, worker=steps.worker + 1, batches=steps.batches - 1e-5)]
    )
    experiment = make_experiment(AllReduce if meets else AsynchronousServers, 2)
    parts = parts_of(experiment, both)
    assert len(parts.step) == 2 * (len(ends) - 2)
    total = np.sum([getattr(parts, name) for name in PARTS], axis=0)
    assert np.allclose(total, parts.step_s, rtol=0, atol=1e-12)


@pytest.mark.parametrize("strategy", [AllReduce, AsynchronousServers])
def test_the_mean_step_is_that_of_the_rate_and_its_parts_add_up_to_it(
    strategy: type[AnyStrategy],
) -> None:
    """The last step of worker 0 is long, and reaches over the end of the window."""
    phases = [Phase.FIRST, Phase.WARMUP, *[Phase.MEASURED] * 3]
    parts = {"wait_s": 0.01, "compute_s": 0.05}
    ends = [0.1, 0.2, 0.3, 0.4, 0.9], [0.15, 0.25, 0.35, 0.45, 0.7]
    steps = concatenate([make_steps(n, each, phases, **parts) for n, each in enumerate(ends)])
    told = columns(make_experiment(strategy, 2), steps)
    assert told["mean_step_s"] == pytest.approx(2 / compute_metrics(steps, 1).examples_per_sec)
    names = ("dispatch_s", "input_wait_s", "compute_s", "waiting_s", "exchange_s")
    assert sum(float(str(told[name])) for name in names) == pytest.approx(told["mean_step_s"])


def test_who_is_fast_waits_for_others_where_workers_meet() -> None:
    found = parts_of(SYNCHRONOUS, TWO).by_worker()
    assert list(found["waiting_s"]) == pytest.approx([0.02, 0.0])
    assert list(found["exchange_s"]) == pytest.approx([0.02, 0.02])
    told = columns(SYNCHRONOUS, TWO)
    assert (told["slowest_worker"], told["fastest_compute_s"]) == (1, pytest.approx(0.05))
    assert told["waiting_s"] == pytest.approx(0.01)
    assert columns(make_experiment(AsynchronousServers, 2), TWO)["waiting_s"] == 0.0


def test_a_slow_worker_that_meets_nobody_counts_by_its_steps() -> None:
    """It makes half as many: no longer compute is left, of which others would be slow in turn."""
    fast = make_steps(0, [0.1 * n for n in range(1, 7)], PHASES, wait_s=0.01, compute_s=0.05)
    phases = [Phase.FIRST, Phase.WARMUP, *[Phase.MEASURED] * 2]
    slow = make_steps(1, [0.1, 0.2, 0.4, 0.6], phases, wait_s=0.01, compute_s=0.15)
    told = columns(make_experiment(AsynchronousServers, 2), concatenate([fast, slow]))
    longer = float(str(told["compute_s"])) - float(str(told["fastest_compute_s"]))
    assert (longer, told["slow_worker_s"]) == pytest.approx((0.1 / 3, 0.1 / 3))


# Values come before a step; rows of tables are fetched after it has begun.
@pytest.mark.parametrize("moved", [("start", "pulled", "end", "batches"), ("pulled", "end")])
def test_who_gets_its_values_late_begins_late(moved: tuple[str, ...]) -> None:
    first, last = TWO.by_worker()
    late_s = 0.03
    late = replace(last, **{name: getattr(last, name) + late_s for name in moved})
    computes = np.add(last.batches, [0.0, late_s, late_s])  # a batch waits for values
    told = columns(SYNCHRONOUS, concatenate([first, replace(late, batches=computes)]))
    assert told["late_start_s"] == pytest.approx(late_s / 2)
    assert columns(SYNCHRONOUS, TWO)["late_start_s"] == pytest.approx(0.0)
    assert columns(make_experiment(AsynchronousServers, 2), TWO)["late_start_s"] == 0.0


def test_nothing_is_known_inside_the_steps_of_plain_tensorflow() -> None:
    told = columns(make_experiment(StockAllReduce, 2), unseen(TWO))
    assert told["mean_step_s"] == pytest.approx(0.1)
    assert told["dispatch_s"] == pytest.approx(0.0)
    assert {name for name, value in told.items() if value is not None} == {
        "mean_step_s",
        "dispatch_s",
    }


def test_an_emulated_accelerator_was_asked_for_its_factor() -> None:
    emulated = EmulatedCompute(forward_s=0.02, backward_s=0.03, factors=(1.0, 1.4))
    experiment = make_experiment(AllReduce, 2, workload=Workload(emulated=emulated))
    told = columns(experiment, TWO)
    assert (told["stated_compute_s"], told["fastest_stated_s"]) == pytest.approx((0.06, 0.05))


def useful_share(found: PopMetrics) -> float:
    return found.load_balance * found.serialisation * found.transfer


def test_the_metrics_of_a_run_come_from_steps_that_all_workers_have() -> None:
    parts, window = parts_of(SYNCHRONOUS, TWO), measurement_window(TWO)
    found = pop_of(parts, window)
    assert found is not None
    assert found.load_balance == pytest.approx(0.06 / 0.07)
    assert found.serialisation == pytest.approx(0.07 / 0.08)
    assert useful_share(found) == pytest.approx(0.6)
    alone = make_steps(0, ENDS, PHASES, compute_s=0.05)
    single = pop_of(parts_of(make_experiment(Single), alone), window)
    assert single is not None
    assert (single.load_balance, useful_share(single)) == pytest.approx((1.0, 0.5))
    nobody = parts_of(SYNCHRONOUS, unseen(TWO))
    assert pop_of(nobody, window) is None


def test_communication_is_hidden_while_the_worker_computes() -> None:
    steps = make_steps(
        0, [0.1, 0.2, 0.3], [Phase.WARMUP, Phase.EVENTS, Phase.EVENTS], compute_s=0.05
    )
    assert hidden_seconds(steps, no_events()).empty
    # Ready at 110 and 130 ms, back at 120 and 170 ms; the last gradient comes at 150 ms.
    moments = [(1, 0, 0.11), (2, 0, 0.115), (0, 0, 0.12), (1, 1, 0.13), (2, 1, 0.16), (0, 1, 0.17)]
    kind, tensor, time = zip(*moments, strict=True)
    same = np.zeros(len(moments), dtype=np.int64)
    events = EventTable(
        worker=same,
        step=same + 1,
        kind=np.array(kind),
        tensor=np.array(tensor),
        time=np.array(time),
    )
    # Of the other traced step no message is known.
    assert hidden_seconds(steps, events)[0] == pytest.approx(0.03 / 2)


SHAPES = st.tuples(st.integers(1, 6), st.integers(1, 8))
SECONDS = st.floats(1e-6, 10.0)


def exact(value: float) -> object:
    return pytest.approx(value, rel=1e-9)


def metrics_of(useful: np.ndarray, waits: np.ndarray, length_s: float) -> PopMetrics:
    found = pop_metrics(useful, waits, length_s)
    assert found is not None
    return found


@given(st.data(), SHAPES, st.floats(0.0, 10.0))
def test_identities(data: st.DataObject, shape: tuple[int, int], lost_s: float) -> None:
    useful = data.draw(arrays(np.float64, shape, elements=SECONDS))
    waits = data.draw(arrays(np.float64, shape, elements=st.floats(0.0, 1.0)))
    length_s = float((useful + waits).max(axis=0).sum()) + lost_s
    found, each = metrics_of(useful, waits, length_s), useful.sum(axis=1)
    communication = found.serialisation * found.transfer
    assert communication == exact(each.max() / length_s)
    assert found.load_balance * communication == exact(each.mean() / length_s)
    shares = (found.load_balance, found.serialisation, found.transfer)
    assert all(0.0 < share <= 1.0 + 1e-9 for share in shares)


def test_workers_that_are_slow_in_turn_cost_serialisation_and_one_slow_one_balance() -> None:
    nothing = np.zeros((2, 2))
    in_turn = metrics_of(np.array([[1.0, 3.0], [3.0, 1.0]]), nothing, 8.0)
    assert (in_turn.load_balance, in_turn.serialisation, in_turn.transfer) == (1, 4 / 6, 6 / 8)
    always = metrics_of(np.array([[1.0, 1.0], [3.0, 3.0]]), nothing, 8.0)
    assert (always.load_balance, always.serialisation, always.transfer) == (4 / 6, 1, 6 / 8)


def test_without_barriers_only_input_serialises() -> None:
    useful, waits = np.array([[4.0], [6.0]]), np.array([[0.0], [2.0]])
    assert metrics_of(useful, np.zeros((2, 1)), 10.0).serialisation == 1.0
    assert metrics_of(useful, waits, 10.0).serialisation == 6 / 8


def test_clocks_that_differ_make_no_transfer_above_one() -> None:
    assert metrics_of(np.ones((2, 3)), np.zeros((2, 3)), 2.999).transfer == 1.0
    assert pop_metrics(np.zeros((2, 3)), np.zeros((2, 3)), 1.0) is None
