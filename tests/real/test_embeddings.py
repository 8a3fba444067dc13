"""Sparse embeddings train what dense ones train, and the gate would notice if they did not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from experiments.studies.defaults import default_workload
from experiments.suite.gate_arms import LIMIT
from launchers.run.conclude import LaunchedRun
from ps_allreduce.bounds import demands
from ps_allreduce.exchange.stacking import RowRule
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.measurement import Measurement
from ps_allreduce.point.models.recommenders import SMALL_DLRM, SMALL_TWO_TOWER
from ps_allreduce.point.optimizers import Adam
from ps_allreduce.point.strategies import (
    AllReduce,
    AnyStrategy,
    AsynchronousServers,
    Hybrid,
    Single,
    StockServers,
    SynchronousServers,
)
from ps_allreduce.point.strategies.stated import Embeddings
from ps_allreduce.point.workload import Workload
from ps_allreduce.record.step_table import Phase
from tests.cluster import LocalLauncher
from tests.real.gate import (
    TOLERANCE,
    Compare,
    Patched,
    Trained,
    difference,
    single_for,
    train,
)
from tests.real.loopback import loopback_bytes_per_step, private_loopback
from tests.real.points import OWN, point

pytestmark = [pytest.mark.tensorflow, pytest.mark.usefixtures("two_cores")]

#: The most popular row of a table is looked up by a seventh of a batch.
TOWERS = replace(default_workload(SMALL_TWO_TOWER), batch_per_worker=64)

DLRM = replace(default_workload(SMALL_DLRM), batch_per_worker=64)

#: A worker's step moves more than a megabyte.
LARGE = replace(DLRM, batch_per_worker=4096)

#: A user's, with tables of two widths, and Adam, which changes the rows of a step alone.
MINE = replace(OWN, deterministic=True)

SPARSE = {"embeddings": Embeddings.SPARSE}

TRAINED: list[tuple[type[AnyStrategy], int, Workload, dict[str, Any]]] = [
    (Single, 1, TOWERS, {}),
    (AllReduce, 2, TOWERS, {}),
    (AllReduce, 2, DLRM, {}),
    (AsynchronousServers, 1, TOWERS, {"table_rows": RowRule.HASH}),
    (AsynchronousServers, 1, DLRM, {"table_rows": RowRule.RANGE}),
    (AllReduce, 2, MINE, {}),
    (SynchronousServers, 2, MINE, {"table_rows": RowRule.WHOLE}),
    *((SynchronousServers, 2, TOWERS, {"table_rows": rule}) for rule in RowRule),
    (SynchronousServers, 2, DLRM, {}),
    (Hybrid, 2, DLRM, {"table_rows": RowRule.HASH}),
    (StockServers, 1, DLRM, {}),
]


@pytest.mark.parametrize(("strategy", "workers", "workload", "settings"), TRAINED)
def test_rows_alone_train_what_whole_tables_train(
    strategy: type[AnyStrategy],
    workers: int,
    workload: Workload,
    settings: dict[str, Any],
    launcher: LocalLauncher,
    difference_from_single: Compare,
    own_data: Path,
) -> None:
    sparse = point(strategy, workers, workload=workload, **SPARSE, **settings)
    assert difference_from_single(launcher, sparse) < TOLERANCE


def test_adam_on_rows_is_adam_where_every_step_looks_up_every_row(
    launcher: LocalLauncher, single_run: Callable[[Experiment], Trained], tmp_path: Path
) -> None:
    few_rows = replace(
        default_workload("TwoTower-3x8"), optimizer=Adam(epsilon=0.01), batch_per_worker=64
    )
    sparse = point(SynchronousServers, 2, workload=few_rows, **SPARSE)
    whole_tables = replace(single_for(sparse), strategy=Single())
    trained = train(launcher, sparse, tmp_path)
    assert difference(trained, single_run(whole_tables)) < TOLERANCE


@pytest.mark.parametrize(
    ("patch", "strategy", "workload"),
    [
        ("repeated_rows", AllReduce, TOWERS),
        ("repeated_rows", SynchronousServers, MINE),
        ("order_of_shards", SynchronousServers, MINE),
    ],
)
def test_a_row_applied_twice_and_rows_in_the_order_of_shards_are_noticed(
    patch: str,
    strategy: type[AnyStrategy],
    workload: Workload,
    patched_launcher: Patched,
    difference_from_single: Compare,
    own_data: Path,
) -> None:
    sparse = point(strategy, 2, workload=workload, **SPARSE)
    assert difference_from_single(patched_launcher(patch), sparse) > 10 * LIMIT


@pytest.mark.usefixtures("namespaces")
@pytest.mark.parametrize("strategy", [AllReduce, Hybrid])
def test_what_crosses_sockets_is_what_the_bound_counts(
    strategy: type[AnyStrategy], data_dir: Path
) -> None:
    def crossed(num_steps: int) -> tuple[LaunchedRun, Experiment, int, float]:
        measurement = replace(Measurement.of_steps(num_steps), event_steps=0)
        experiment = point(strategy, 2, workload=LARGE, measurement=measurement, **SPARSE)
        run, per_step = loopback_bytes_per_step(alone, experiment)
        assert run.steps is not None
        steps = int((run.steps.phase >= Phase.MEASURED).sum())
        return run, experiment, steps, steps * per_step

    with private_loopback(data_dir) as alone:
        _, _, few, bytes_of_few = crossed(40)
        run, experiment, many, bytes_of_many = crossed(120)
    # As if every task had a host of its own: all that tasks send each other crosses the loopback.
    apart = {task.task: task.task for task in run.tasks}
    loads = run.placement.bytes_per_server if run.placement else ()
    flows = demands(experiment, apart, loads, run.gradient_bytes or 0, run.rows_asked)
    stated = sum(flow.num_bytes for flow in flows) / experiment.num_workers
    assert stated > 1e6
    assert (bytes_of_many - bytes_of_few) / (many - few) == pytest.approx(stated, rel=0.03)
