"""What the runner asks of every strategy, and what those of the suite's own have in common.

The suite's own train a `Program`.  Decides which program a workload asks for, what an experiment
says in the words of `exchange`, and which device a worker uses: its first GPU, or its processors.
A task refuses to start when it finds another number of GPUs than it was given, because TensorFlow
would go on without them and tell only its log.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import keras
import numpy as np
import numpy.typing as npt
import tensorflow as tf

from ps_allreduce.cluster import TaskType, TfConfig
from ps_allreduce.errors import LaunchError
from ps_allreduce.exchange import updates
from ps_allreduce.exchange.buckets import Bucket
from ps_allreduce.exchange.updates import UpdateRule
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.measurement import Evaluation
from ps_allreduce.point.optimizers import Optimizer
from ps_allreduce.point.placement import Held, Plan, VariableSpec
from ps_allreduce.point.resources import Device
from ps_allreduce.point.wire import ELEMENT_BYTES
from ps_allreduce.record.variables import MessageRecord, RowsAsked, SparseGradient, TableUsed
from ps_allreduce.workloads.emulated_accelerator import EmulatedProgram
from ps_allreduce.workloads.keras_program import RealProgram
from ps_allreduce.workloads.program import Program

Rows = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One driving task: a worker that drives itself, or the chief that drives all workers.

    A single worker without a cluster has no `tf_config`.
    """

    experiment: Experiment
    tf_config: TfConfig | None


class Backend(ABC):
    """One training strategy, driven step by step.

    The order of calls is `connect`, `prepare`, then any number of the others.

    Attributes:
        variables: all variables of the model in creation order, once it is built.
    """

    variables: tuple[VariableSpec, ...]

    def __init__(self, task: Task) -> None:
        self._task = task
        self._experiment = task.experiment
        #: How often a step function has been traced so far.
        self.traces = 0

    @abstractmethod
    def connect(self) -> None:
        """Return once all tasks of the cluster are connected."""

    @abstractmethod
    def prepare(self, data_dir: Path) -> None:
        """Build the model, and create variables and the workers' own resources.

        The step is not traced yet.
        """

    @abstractmethod
    def make(
        self, num_steps: int, *, events: bool = False, recorded: bool = True
    ) -> list[tf.Tensor]:
        """Make that many steps on every worker that this task drives.

        A strategy that deals steps makes the same total, each step on a worker that is free.

        Returns:
            One row per step, or several in a matrix, where the step was made.  Unrecorded steps
            take no timestamps and yield their loss.
        """

    @abstractmethod
    def fetch(self, made: Sequence[tf.Tensor]) -> Rows:
        """Bring the rows of recorded steps here; `worker_step.RowLayout` lays them out."""

    def run(self, num_steps: int, *, events: bool = False) -> Rows:
        """Make that many steps and fetch their rows, one per step."""
        return self.fetch(self.make(num_steps, events=events))

    @abstractmethod
    def evaluate(self, evaluation: Evaluation) -> Rows:
        """Evaluate what was trained; one row for each batch (`record.evaluation_timings`)."""

    def agree(self, value: float) -> float:
        """The largest value that a driving task gives; every driving task gets this answer."""
        return value  # this task drives all workers

    @abstractmethod
    def weight_checksums(self) -> list[int]:
        """An exact sum over the bits of every trainable variable or bucket."""

    @abstractmethod
    def read_weights(self) -> list[npt.NDArray[np.float32]]:
        """The whole trainable variables, in creation order."""

    def placement(self) -> tuple[Plan, Held] | None:
        """The plan, and what devices hold of it as TensorFlow tells; None without servers."""
        return None

    def tables(self) -> tuple[list[TableUsed], list[str]]:
        """The plan for tables that are exchanged by rows, and the device of each server's rows."""
        return [], []

    def messages(self) -> list[MessageRecord]:
        """What a worker sends in a step, in that order; nothing where no gradient leaves it."""
        return []

    def messages_of_rows(self, rows: RowsAsked | None) -> list[MessageRecord]:
        """One that stands for all rows of a step, the last; none where no row is exchanged."""
        if rows is None or not self._experiment.strategy.communicates():
            return []
        tables = tuple(spec.name for spec in self.variables if spec.is_table)
        num_bytes = round(rows.unique * rows.row_bytes)
        return [MessageRecord(num_bytes=num_bytes, variables=tables, of_rows=True)]

    @abstractmethod
    def sparse_gradients(self) -> tuple[SparseGradient, ...]:
        """Gradients that were sparse when a step was traced, before anything was done to them."""

    def rows_asked(self) -> RowsAsked | None:
        """Of tables of which only these are exchanged; None where there are none."""
        return None

    def gradient_bytes(self, rows: RowsAsked | None) -> int:
        """Of one worker and step, in float32; of tables of `rows` alone."""
        return sum(spec.num_bytes for spec in self.variables if spec.trainable)

    def message_per_variable(self) -> list[MessageRecord]:
        """The messages where each gradient is handed to TensorFlow on its own, before packing."""
        return [
            MessageRecord(num_bytes=spec.num_bytes, variables=(spec.name,))
            for spec in self.variables
            if spec.trainable
        ]


class ProgramBackend(Backend):
    """A strategy that takes gradients from a function of parameter values."""

    _has_evaluated = False

    def prepare(self, data_dir: Path) -> None:
        """Build the program, and then what trains it."""
        program = make_program(self._experiment, data_dir)
        self.variables, self._sparse = program.variables, program.sparse
        self._in_order, self._count_rows = program.in_order, program.rows_asked
        #: Variables that are exchanged whole, of which tables count as not trained.
        self._whole = program.exchanged_whole()
        self.build(program)

    @abstractmethod
    def build(self, program: Program) -> None:
        """Create variables and the worker's own resources; do not trace the step yet."""

    def evaluate(self, evaluation: Evaluation) -> Rows:
        """Evaluate all batches; at first, a batch on each worker that does not count."""
        shares = evaluation.shares(self._experiment.num_workers)
        if not self._has_evaluated:
            self.evaluate_batches([min(1, share) for share in shares])
            self._has_evaluated = True
        self.agree(0.0)
        rows = self.evaluate_batches(shares)
        self.agree(0.0)  # nobody leaves while others evaluate
        return rows

    def rows_asked(self) -> RowsAsked | None:
        """Those of the batches that workers repeat."""
        return self._count_rows(self._experiment.num_ps)

    def gradient_bytes(self, rows: RowsAsked | None) -> int:
        """Of one worker and step, in float32; of tables of `rows` alone."""
        whole = sum(spec.num_bytes for spec in self._whole if spec.trainable)
        return whole + (0 if rows is None else round(rows.unique * rows.row_bytes))

    def sparse_gradients(self) -> tuple[SparseGradient, ...]:
        """Those of the program."""
        return tuple(sparse_gradient(*each) for each in self._sparse.values())

    @abstractmethod
    def evaluate_batches(self, shares: Sequence[int]) -> Rows:
        """Evaluate so many batches on each worker, those that this task drives."""


def make_program(experiment: Experiment, data_dir: Path) -> Program:
    """The computation that the experiment's workload asks for."""
    load = experiment.of_each
    kind = RealProgram if load.emulated is None else EmulatedProgram
    program = kind(load, experiment.num_workers, data_dir, experiment.evaluation)
    if experiment.strategy.is_sparse:
        assert isinstance(program, RealProgram)
        program.look_up_rows()
    return program


def sparse_gradient(variable: keras.Variable, looked_up: int | None) -> SparseGradient:
    """Of a variable of which a worker looks up so many rows in a step."""
    return SparseGradient(
        variable=variable.path,
        num_rows=int(variable.shape[0]),
        row_bytes=np.dtype(np.float32).itemsize * math.prod(variable.shape[1:]),
        looked_up=looked_up,
    )


COMPUTE = {Device.CPU: "/device:CPU:0", Device.GPU: "/device:GPU:0"}

VISIBLE = "CUDA_VISIBLE_DEVICES"


def gpu_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Environment variables of a task with GPUs, to be set before TensorFlow looks for them.

    The task sees one GPU: MultiWorkerMirroredStrategy would make a replica on each.  TensorFlow
    takes memory as it needs it, so that samples tell what the model takes, and a GPU that somebody
    else uses too is no failure at once.
    """
    return {
        VISIBLE: environment.get(VISIBLE, "").split(",")[0],
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "TF_FORCE_GPU_ALLOW_GROWTH": "true",
    }


def require_gpus(kind: TaskType, visible: str) -> None:
    """See that TensorFlow finds one GPU on a worker, and none on any other task.

    Args:
        visible: CUDA_VISIBLE_DEVICES, for the message.

    Raises:
        LaunchError: it finds more or fewer.
    """
    wanted = 1 if kind is TaskType.WORKER else 0
    visible_gpus = len(tf.config.list_physical_devices("GPU"))
    if visible_gpus == wanted:
        return
    if not tf.test.is_built_with_cuda():
        raise LaunchError(
            "this is a TensorFlow without CUDA, which cannot use GPUs: make setup TF=cuda."
        )
    raise LaunchError(
        f"TensorFlow finds {visible_gpus} GPUs where {wanted} was planned ({VISIBLE}={visible!r}): "
        "its log says why. Does nvidia-smi work on this host?"
    )


def update_rule(optimizer: Optimizer) -> UpdateRule:
    """What applies the gradients of an optimizer, at a constant learning rate."""
    rule: UpdateRule = getattr(updates, optimizer.applied_by)(**asdict(optimizer))
    return rule


def scheduled_rule(experiment: Experiment, *, averaged: bool) -> UpdateRule:
    """What applies the gradients of an experiment, at the learning rate of its schedule.

    Args:
        averaged: an update applies the mean gradient of all workers, not that of one.
    """
    optimizer, schedule = experiment.workload.optimizer, experiment.workload.schedule
    workers = experiment.num_workers
    if schedule.linear_scaling and averaged:
        optimizer = replace(optimizer, learning_rate=workers * optimizer.learning_rate)
    rule = update_rule(optimizer)
    if not schedule.rate_warmup_steps:
        return rule
    # Synchronous steps that asynchronous ones follow count on in the same slot.
    per_step = workers if experiment.strategy.deals_steps else 1
    return updates.WarmedUp(
        rule=rule,
        num_updates=schedule.rate_warmup_steps * per_step,
        counts=per_step if averaged else 1,
    )


def recorded_buckets(buckets: Sequence[Bucket], names: Sequence[str]) -> list[MessageRecord]:
    """What every bucket carries.

    Args:
        names: of the variables that the tensors of the buckets belong to, by their positions.
    """
    return [
        MessageRecord(
            num_bytes=bucket.size * ELEMENT_BYTES,
            variables=tuple(dict.fromkeys(names[piece.tensor] for piece in bucket.pieces)),
        )
        for bucket in buckets
    ]
