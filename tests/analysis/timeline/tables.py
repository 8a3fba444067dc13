"""Made-up traced runs: by hand, and any that clocks could have noted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from hypothesis import strategies as st

from analysis.timeline.traced import TracedRun
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.models.recommenders import RecommenderModel
from ps_allreduce.point.optimizers import Sgd
from ps_allreduce.point.strategies import (
    AllReduce,
    AnyStrategy,
    AsynchronousServers,
    NoCommunication,
    Single,
    StockServers,
    SynchronousServers,
)
from ps_allreduce.point.strategies.stated import Embeddings
from ps_allreduce.point.wire import Wire
from ps_allreduce.point.workload import Workload
from ps_allreduce.record.records import RunRecord
from ps_allreduce.record.step_table import EventKind, EventTable, Floats, Integers, Phase, StepTable
from ps_allreduce.record.variables import MessageRecord
from tests.analysis.builders import run, tasks_on
from tests.fakes import make_experiment

#: Rows of tables are exchanged alone.
ROWS: Mapping[str, Any] = {
    "embeddings": Embeddings.SPARSE,
    "workload": Workload(model=RecommenderModel(), optimizer=Sgd()),
}

#: When the first traced step begins; a wall clock has few digits left for microseconds.
BEGIN = 1_790_000_000.0


def record_of(
    strategy: type[AnyStrategy], num_workers: int, num_messages: int, **settings: Any
) -> RunRecord:
    """A run on two hosts, with two servers where the strategy has some."""
    own = make_experiment(strategy, num_workers, **settings)
    workers = {f"worker:{index}": f"n{index % 2}" for index in range(own.num_workers)}
    servers = {f"ps:{index}": f"n{index % 2}" for index in range(own.num_ps)}
    messages = tuple(
        MessageRecord(
            server=number % own.num_ps if own.num_ps and not _is_of_rows(own, number) else None,
            num_bytes=4 * (number + 1),
            variables=(f"v{number}",),
            of_rows=_is_of_rows(own, number),
        )
        for number in range(num_messages)
    )
    tasks = tasks_on(workers | servers)
    return run(own, 100.0, tasks=tasks, num_messages=num_messages, messages=messages)


def _is_of_rows(experiment: Experiment, number: int) -> bool:
    """The first bucket, and then rows."""
    return experiment.strategy.is_sparse and number == 1


def steps_of(workers: int, steps: int, moments: Floats, seen: bool = True) -> StepTable:
    """Traced steps, numbered from 7.

    Args:
        moments: start, pulled, input, loss, last gradient and end [workers, steps, 6].
    """
    worker, step = (axis.ravel() for axis in np.indices((workers, steps)))
    flat = BEGIN + moments.reshape(-1, 6)
    count = len(flat)
    return StepTable(
        worker=worker,
        step=step + 7,
        phase=np.full(count, int(Phase.EVENTS)),
        loss=np.full(count, 0.5),
        start=flat[:, 0],
        pulled=flat[:, 1] if seen else np.full(count, np.nan),
        end=flat[:, 5],
        batches=flat[:, np.newaxis, 2:5] if seen else np.zeros((count, 0, 3)),
        releases=np.zeros((count, 0)),
    )


def events_of(moments: Floats) -> EventTable:
    """Moments of messages, pulled, ready and pushed [workers, steps, messages, 3]."""
    worker, step, tensor, kind = (axis.ravel() for axis in np.indices(moments.shape))
    return EventTable(
        worker=worker,
        step=step + 7,
        kind=np.asarray([int(each) for each in EventKind])[kind],
        tensor=tensor,
        time=BEGIN + moments.ravel(),
    )


def shuffled(table: EventTable, order: Integers) -> EventTable:
    """The same rows in another order."""
    columns = {name: getattr(table, name)[order] for name in EventTable.__slots__}
    return EventTable(**columns)


_STRATEGIES: tuple[tuple[type[AnyStrategy], dict[str, Any]], ...] = (
    (SynchronousServers, {"wire": Wire(in_flight=1)}),
    (SynchronousServers, {"wire": Wire(in_flight=2)}),
    (SynchronousServers, {"wire": Wire(in_flight=1), **ROWS}),
    (AllReduce, {"wire": Wire(in_flight=2), **ROWS}),
    (AsynchronousServers, {"wire": Wire(in_flight=0)}),
    (AllReduce, {"wire": Wire(in_flight=2)}),
    (AllReduce, {"bytes_per_pack": 0}),
    (NoCommunication, {}),
    (Single, {}),
    (StockServers, {}),
)


@st.composite
def traced_runs(draw: st.DrawFn) -> TracedRun:
    """Steps one after the other whose inner moments may be noted in a wrong order."""
    strategy, settings = draw(st.sampled_from(_STRATEGIES))
    steps = draw(st.integers(1, 3))
    workers = strategy.max_workers or draw(st.integers(1, 3))
    seen = not strategy.as_shipped
    num_messages = draw(st.integers(1, 5)) if strategy.communicates() else 0
    traced = (num_messages or 3) if seen else 0
    seconds = np.random.default_rng(draw(st.integers(0, 1 << 16)))
    edges = np.cumsum(
        seconds.choice([2e-6, 1e-3, 0.1], (workers, steps, 2)).reshape(workers, -1), 1
    )
    edges = edges.reshape(workers, steps, 2)
    begin, end = edges[..., :1], edges[..., 1:]
    # Clocks are read beside the computation; below 0 that of the step's start is the late one.
    late = draw(st.sampled_from([0.0, 5e-6, -1e-3]))

    def between(count: int) -> Floats:
        inside = begin + (end - begin) * seconds.random((workers, steps, count))
        return np.asarray(inside + late * seconds.random(inside.shape))

    moments = np.concatenate([begin, between(4), end], axis=2)
    events = between(3 * traced).reshape(workers, steps, traced, 3)
    table = events_of(events)
    record = record_of(strategy, workers, num_messages if seen else 0, **settings)
    made = TracedRun.of(
        record,
        steps_of(workers, steps, moments, seen),
        shuffled(table, seconds.permutation(len(table.time))),
    )
    assert made is not None
    return made
