"""The points of the correctness gate.  Pure.

Decides which settings must train the same weights, what they train, what each is compared with, how
far weights may differ, and how that is measured and shown.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np
import numpy.typing as npt
from rich import box
from rich.table import Table

from experiments.models.workload_request import WorkloadRequest
from experiments.studies.scope import Scope, Threads, check_servers
from ps_allreduce.environment import has_module
from ps_allreduce.errors import UserError
from ps_allreduce.exchange.stacking import RowRule
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.inputs.data import Digits, InputFiles, Synthetic
from ps_allreduce.point.measurement import Measurement
from ps_allreduce.point.models.recommenders import RecommenderModel
from ps_allreduce.point.models.trained import SMALL_CNN, OwnModel
from ps_allreduce.point.optimizers import Adagrad, Adam, AdamW, OnRows
from ps_allreduce.point.placement import VariableSpec
from ps_allreduce.point.resources import Spread, workers_together
from ps_allreduce.point.strategies import STRATEGIES, AnyStrategy, Single
from ps_allreduce.point.strategies.stated import Embeddings, StrategySettings
from ps_allreduce.point.workload import Workload
from ps_allreduce.record.variables import MADE_DENSE, RunWeights, Values

STEPS = 10

MEASUREMENT = Measurement.of_steps(STEPS)


def gate_workload(request: WorkloadRequest) -> Workload:
    """What is trained: as stated, but nothing is drawn at random, and files are read in order.

    The suite's own images are synthetic unless they were asked for: the digits have an even
    background, whose activations sit on the kink of the ReLU.  There a rounding error decides for
    thousands of pixels at once.

    Raises:
        UserError: there is no such model, or it cannot be trained like this.
    """
    load = request.workload(SMALL_CNN if request.model is None else request.model)
    if request.input is None and isinstance(load.data, Digits):
        load = replace(load, data=Synthetic())
    if isinstance(load.data, InputFiles):
        load = replace(load, pipeline=replace(load.pipeline, ordered=True, flips=False))
    return replace(load, deterministic=True)


def gate_split_bytes(variables: Iterable[VariableSpec], num_ps: int) -> int:
    """The threshold of the placement `partitioned` at which some variable of every model is cut."""
    largest = max(spec.num_bytes for spec in variables if spec.trainable)
    return max(1, largest // (2 * num_ps))


def arms(scope: Scope, num_ps: int) -> list[Experiment]:
    """What must agree with a single worker: synchronous strategies, and others with one worker."""
    (workload,), (workers,) = scope.workloads, scope.scale.workers
    able = [
        each
        for each in STRATEGIES.values()
        if not each.refusal(workload) and (each.module is None or has_module(each.module))
    ]
    if squares_parts(workload):
        able = [each for each in able if not each.as_shipped]
    communicating = [each for each in able if each.communicates()]
    points = (
        scope.point(workload, strategy, workers if strategy.synchronous else 1, settings)
        for strategy in sorted(communicating, key=lambda each: not each.synchronous)
        for settings in _settings(scope, strategy, num_ps)
    )
    return [point for point in points if not _has_too_few_tables(scope, point)]


def _has_too_few_tables(scope: Scope, point: Experiment) -> bool:
    """Tables stay whole, and not every server would hold one."""
    servers = point.strategy.servers
    if servers is None or servers.table_rows is not RowRule.WHOLE:
        return False
    try:
        check_servers([point], scope.describe)
    except UserError:
        return True
    return False


def squares_parts(workload: Workload) -> bool:
    """Whether TensorFlow as it ships trains this to other weights than the suite.

    Where an embedding looks something up twice, its gradient has two parts.  Keras' Adam and
    Adagrad square each of them (`ops.square` of an `IndexedSlices`, Keras 3.15), and the suite
    squares their sum.
    """
    model = workload.model
    notes = model.notes if isinstance(model, OwnModel) else ()
    looks_up = isinstance(model, RecommenderModel) or any(MADE_DENSE in note for note in notes)
    return looks_up and isinstance(workload.optimizer, Adagrad | Adam | AdamW)


def _settings(scope: Scope, strategy: type[AnyStrategy], num_ps: int) -> Iterable[StrategySettings]:
    """The variants of a strategy that these workers can train."""
    (workload,), (workers,) = scope.workloads, scope.scale.workers
    told = {None, *scope.alterations(workload)}
    for own in strategy.variants():
        able = not own.host_aggregation or aggregates(workers, scope.spread)
        looks_up = own.embeddings is Embeddings.SPARSE
        if able and own.altered in told and not (looks_up and workload.sparse_refusal()):
            yield replace(scope.settings, num_ps=num_ps).changed_by(own)


def aggregates(num_workers: int, spread: Spread | None) -> bool:
    """Hosts have several workers, and all equally many: their gradients can be added up there."""
    together = workers_together(num_workers, spread)
    return together > 1 and num_workers % together == 0


def is_lazy(point: Experiment) -> bool:
    """Its rows train other weights than whole tables do."""
    return point.strategy.is_sparse and point.workload.optimizer.on_rows is OnRows.LAZY


def reference_of(point: Experiment) -> Experiment:
    """The single worker that a point must agree with.

    It takes the batches of all workers of a step, one after the other: batch norm normalises the
    same batches, and a mean of their means is the same mean.  Its threads are the suite's own.  Its
    tables are whole, unless the optimizer trains rows alone to other weights.
    """
    load, workers, cores = point.of_each, point.num_workers, point.resources.cores_per_worker
    whole = replace(
        load,
        accumulation=workers * load.accumulation,
        dealt_to=workers if workers > 1 else None,
    )
    resources = replace(point.resources, threads_per_worker=Threads().of(Single, cores))
    strategy = Single(embeddings=Embeddings.SPARSE) if is_lazy(point) else Single()
    return replace(point, strategy=strategy, num_workers=1, workload=whole, resources=resources)


#: Of the distance trained.  Sums in another order round differently; a wrong mean differs by far
#: more.
LIMIT = 1e-4


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """How far weights are from those of a reference.

    Attributes:
        distance: Euclidean, of all trainable weights together, relative to the distance that the
            reference trained: ||w - w_ref|| / ||w_ref - w_0||.
        furthest: name of the variable that contributes most.
        furthest_distance: its own distance, relative to the same.  A variable that hardly moves,
            such as a bias before batch norm, has no distance of its own to be compared with.
    """

    distance: float
    furthest: str
    furthest_distance: float

    @property
    def holds(self) -> bool:
        """The distance is within the limit."""
        return self.distance <= LIMIT


class GateVerdict(StrEnum):
    """What became of an arm of the gate."""

    AGREES = "agrees"
    DIFFERS = "DIFFERS"
    NOT_TRAINED = "NOT TRAINED"


@dataclass(frozen=True, slots=True, kw_only=True)
class GateArm:
    """A setting that must agree with a single worker, and whether it does.

    Attributes:
        run, reference: run identities of both.
        agreement: None if there are no weights to be compared.
        reason: why there are none.
    """

    name: str
    run: str
    reference: str
    agreement: Agreement | None = None
    reason: str = ""

    @property
    def verdict(self) -> GateVerdict:
        """Whether it agrees."""
        if self.agreement is None:
            return GateVerdict.NOT_TRAINED
        return GateVerdict.AGREES if self.agreement.holds else GateVerdict.DIFFERS


def compare(weights: Values, reference: RunWeights, names: Sequence[str]) -> Agreement:
    """Compare weights with those of a reference.

    Args:
        weights: trainable variables in creation order; finite.
        names: of the variables.

    Raises:
        ValueError: the variables are not the same, or the reference stayed where it was.
    """
    missed = [_length(a, b) for a, b in zip(weights, reference.final, strict=True)]
    gone = [_length(a, b) for a, b in zip(reference.final, reference.initial, strict=True)]
    way = math.hypot(*gone)
    if not way:
        raise ValueError("the reference did not train")
    worst = int(np.argmax(missed))
    return Agreement(
        distance=math.hypot(*missed) / way,
        furthest=names[worst],
        furthest_distance=missed[worst] / way,
    )


def _length(a: npt.NDArray[np.float32], b: npt.NDArray[np.float32]) -> float:
    if a.shape != b.shape:
        raise ValueError(f"a variable has the shape {a.shape}, and in the reference {b.shape}")
    return float(np.linalg.norm(np.subtract(a, b, dtype=np.float64)))


def render_arms(arms: Sequence[GateArm]) -> Table:
    """Every arm on a line: its distance, and the variable that contributes most."""
    table = Table(box=box.SIMPLE_HEAD)
    for heading in ("setting", "distance", "most of it", "from", "verdict"):
        table.add_column(heading)
    for arm in arms:
        table.add_row(arm.name, *_cells(arm.agreement), arm.verdict)
    return table


def _cells(found: Agreement | None) -> tuple[str, str, str]:
    if found is None or not found.distance:
        return "-" if found is None else "0", "-", "-"
    return f"{found.distance:.1e}", f"{found.furthest_distance:.1e}", found.furthest
