"""Embeddings: below which share of looked-up rows do rows travel faster than whole tables?

Axes: rows of the tables (1,000 to 16,000, so that a worker's step looks up from half of them to a
sixteenth), how unevenly ids are drawn, workers, servers; in the profile standard also width and
batch.  What travels: whole tables by all-reduce, rows by all-reduce, rows of synchronous servers
(one for each worker, or a single one), rows of the hybrid (with a server for each worker), and
TensorFlow as it ships.  All variables but tables have the most balanced placement, as in `compare`.

Method: two tables and a perceptron for each (`TwoTower`), SGD, really computed.  Every worker is on
a host of its own, with links of 50 Mbit/s, so that the network decides the step.  Ids follow the
power law of HugeCTR's generator.  With the middle table, all else is changed one at a time.  4
steps of warm-up and 8 measured ones, 3 launches.

Cost: 23 points, 69 launches, about 12 minutes on two cores.

It should show that rows win where a step looks up a small share of them, and by how much; that
servers send fewer bytes than a gather as soon as there are several of them; where the lines cross,
beside where bytes say that they cross; and what TensorFlow does by itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from experiments.studies.scope import Scope
from experiments.studies.study import SmallForm, Study, fixed_profiles
from ps_allreduce.errors import UserError
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.models.recommenders import RecommenderModel
from ps_allreduce.point.optimizers import Sgd
from ps_allreduce.point.strategies import (
    AllReduce,
    Hybrid,
    StockAllReduce,
    StockServers,
    SynchronousServers,
)
from ps_allreduce.point.strategies.stated import Embeddings, StrategySettings
from ps_allreduce.point.workload import Workload

WORKERS, BITS_PER_S, BATCH, WIDTH = (2, 4), 50e6, 4096, 32

#: Rows of each of the two tables.
ROWS = (1000, 4000, 16_000)


def _towers(rows: int, *, width: int = WIDTH, batch: int = BATCH, **drawn: float) -> Workload:
    return Workload(
        model=RecommenderModel(name=f"TwoTower-{rows}x{width}", **drawn),
        optimizer=Sgd(learning_rate=0.1),
        batch_per_worker=batch,
    )


#: Tables that only differ in their rows, and the middle one with something else changed.
TABLES = tuple(map(_towers, ROWS))
MIDDLE = TABLES[1]
EVENLY_DRAWN = _towers(ROWS[1], id_exponent=0.0)
CHANGED = (EVENLY_DRAWN, _towers(ROWS[1], width=8), _towers(ROWS[1], batch=BATCH // 4))

DENSE = StrategySettings(embeddings=Embeddings.DENSE)
SPARSE = StrategySettings(embeddings=Embeddings.SPARSE)

PROFILES = fixed_profiles(4, 8, launches=3)


def _points(scope: Scope) -> Iterator[Experiment]:
    most = scope.scale.workers[-1]
    for workload in scope.workloads:
        if refusal := workload.sparse_refusal():
            raise UserError(refusal)
        yield from _sides(scope, workload, most)
        if workload not in CHANGED:
            yield scope.point(workload, SynchronousServers, most, _on(scope, workload, 1))
            yield scope.point(workload, Hybrid, most, _on(scope, workload, most))
        if workload == MIDDLE:
            for workers in scope.scale.workers[:-1]:
                yield from _sides(scope, workload, workers)
        if workload == TABLES[-1]:
            yield scope.point(workload, StockAllReduce, most)
            stated = replace(scope.settings, num_ps=most, embeddings=None)
            yield scope.point(workload, StockServers, most, stated)


def _sides(scope: Scope, workload: Workload, workers: int) -> Iterator[Experiment]:
    """Whole tables and rows by all-reduce, and rows of as many servers as workers."""
    for settings in (DENSE, SPARSE):
        stated = scope.settings.changed_by(settings)
        yield scope.point(workload, AllReduce, workers, stated)
    yield scope.point(workload, SynchronousServers, workers, _on(scope, workload, workers))


def _on(scope: Scope, workload: Workload, num_ps: int) -> StrategySettings:
    return scope.beside_rows(workload, num_ps).changed_by(SPARSE)


STUDY = Study(
    about=__doc__,
    points=_points,
    profiles=PROFILES,
    workloads=(*TABLES, *CHANGED),
    small=SmallForm(
        workloads=(*TABLES, EVENLY_DRAWN),
        workers=WORKERS,
        hosts=WORKERS[-1],
        bandwidth=BITS_PER_S,
    ),
)
