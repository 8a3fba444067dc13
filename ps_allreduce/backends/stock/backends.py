"""TensorFlow's own strategies as their tutorials write them: how a step is driven and observed.

`stock_training` has the step itself, which is observed from outside.  Sources:
tensorflow.org/tutorials/distribute/multi_worker_with_ctl and .../parameter_server_training.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf
from tensorflow.types.experimental import PolymorphicFunction

from ps_allreduce.backends.contract import Backend, Rows, Task
from ps_allreduce.backends.stock.stock_training import EmulatedStockTraining, StockTraining, timed
from ps_allreduce.cluster import TaskType, TfConfig
from ps_allreduce.errors import UserError
from ps_allreduce.point.measurement import Evaluation
from ps_allreduce.point.placement import Held, Plan, make_plan, read_back
from ps_allreduce.point.strategies import StockAllReduce, StockServers
from ps_allreduce.record.variables import MessageRecord, SparseGradient
from ps_allreduce.workloads.inputs import WorkerIndex


class StockBackend(Backend):
    """Drives a strategy of TensorFlow's, which `connect` makes."""

    _strategy: tf.distribute.Strategy

    def prepare(self, data_dir: Path) -> None:
        """Create the variables of model and optimizer in the strategy's scope."""
        still_open = True
        try:
            with self._strategy.scope():
                self._training = self._make_training(data_dir)
                still_open = tf.distribute.get_strategy() is self._strategy
        except IndexError:  # a scope that is gone cannot be closed
            if still_open:
                raise
        if not still_open:
            raise UserError(
                f"building {self._experiment.workload.model.name} ends the scope of TensorFlow's "
                "strategy: leave keras.utils.clear_session() out of it."
            )
        self._training.complete()
        self.variables = self._training.variables

    def _make_training(self, data_dir: Path) -> StockTraining:
        emulated = self._experiment.workload.emulated is not None
        kind = EmulatedStockTraining if emulated else StockTraining
        return kind(self._experiment, data_dir)

    def _initialise(self, worker: WorkerIndex) -> None:
        """Create what the worker that executes this needs besides its input."""

        @tf.function(autograph=False)
        def initialise() -> None:
            self._training.initialise(worker)

        initialise()

    def _step(self, iterator: Any, worker: tf.Tensor, recorded: bool) -> tf.Tensor:
        """Trace one step of the replicas: its row, or its loss where nothing is recorded."""
        batch = next(iterator)

        def replica(batch: Any) -> tf.Tensor:
            if recorded:
                return timed(worker, lambda: self._training.step(batch))
            return self._training.step(batch).loss

        return self._strategy.run(replica, args=(batch,))

    def evaluate(self, evaluation: Evaluation) -> Rows:
        """Of plain TensorFlow only training is measured (`point.experiment`)."""
        raise NotImplementedError

    def messages(self) -> list[MessageRecord]:
        """A gradient of each variable, as before any packing."""
        return self.message_per_variable()

    def sparse_gradients(self) -> tuple[SparseGradient, ...]:
        """As Keras' optimizer gets them."""
        return tuple(self._training.sparse.values())

    def weight_checksums(self) -> list[int]:
        """One exact sum over the bits of every trainable variable."""
        return [int(weight.view(np.int32).sum(dtype=np.int64)) for weight in self.read_weights()]

    def read_weights(self) -> list[npt.NDArray[np.float32]]:
        """The trainable variables, in creation order."""
        return self._training.weights()


class StockAllReduceBackend(StockBackend):
    """One worker of several, each of which makes its own steps."""

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self._traced: dict[bool, PolymorphicFunction] = {}

    def connect(self) -> None:
        """Return once the strategy has seen all workers."""
        strategy = self._experiment.strategy
        assert isinstance(strategy, StockAllReduce)
        assert self._task.tf_config is not None
        os.environ["TF_CONFIG"] = self._task.tf_config.render()
        self._worker = self._task.tf_config.task.index
        implementations = tf.distribute.experimental.CommunicationImplementation
        self._strategy = tf.distribute.MultiWorkerMirroredStrategy(
            communication_options=tf.distribute.experimental.CommunicationOptions(
                implementation=implementations(strategy.collective.upper())
            )
        )

    def prepare(self, data_dir: Path) -> None:
        """Create this worker's copy of the variables, and its input."""
        super().prepare(data_dir)
        self._iterator = iter(
            self._strategy.distribute_datasets_from_function(
                lambda context: self._training.dataset(context.input_pipeline_id)
            )
        )
        self._strategy.run(self._initialise, args=(self._worker,))

    def make(
        self, num_steps: int, *, events: bool = False, recorded: bool = True
    ) -> list[tf.Tensor]:
        """Make steps one after the other."""
        if recorded not in self._traced:
            self._traced[recorded] = self._one_step(recorded)
        return [self._traced[recorded](self._iterator) for _ in range(num_steps)]

    def _one_step(self, recorded: bool) -> PolymorphicFunction:
        @tf.function(autograph=False)
        def step(iterator: Any) -> tf.Tensor:
            self.traces += 1
            return self._step(iterator, tf.constant(self._worker), recorded)

        return step

    def fetch(self, made: Sequence[tf.Tensor]) -> Rows:
        """Rows are in this process already."""
        return np.stack([row.numpy() for row in made])

    def agree(self, value: float) -> float:
        """The largest of all workers' values."""
        given = self._strategy.run(lambda: tf.constant([value], tf.float64))
        return float(np.max(self._strategy.gather(given, axis=0).numpy()))


#: On a single core TensorFlow would choose a single thread, with which a worker hangs in its first
#: step.  The tutorial gives its workers more threads too, where they have few cores.
THREADS_ON_ONE_CORE = 8


def serve_stock(tf_config: TfConfig) -> None:
    """Be a parameter server, or a worker that a chief drives; never returns."""
    config, task = tf.compat.v1.ConfigProto(), tf_config.task
    if task.type is TaskType.WORKER and len(os.sched_getaffinity(0)) == 1:
        config.inter_op_parallelism_threads = THREADS_ON_ONE_CORE
    tf.distribute.Server(
        tf.train.ClusterSpec(tf_config.cluster.as_dict()),
        job_name=str(task.type),
        task_index=task.index,
        protocol="grpc",
        config=config,
    ).join()


class StockServersBackend(StockBackend):
    """The chief, which schedules steps on whichever worker is free."""

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        strategy = task.experiment.strategy
        assert isinstance(strategy, StockServers)
        self._settings = strategy
        self._functions: dict[bool, dict[int, PolymorphicFunction]] = {}

    def connect(self) -> None:
        """Return once the strategy has seen all tasks."""
        assert self._task.tf_config is not None
        os.environ["TF_CONFIG"] = self._task.tf_config.render()
        resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
        self._strategy = tf.distribute.ParameterServerStrategy(resolver)
        self._coordinator = tf.distribute.coordinator.ClusterCoordinator(self._strategy)

    def prepare(self, data_dir: Path) -> None:
        """Create variables where TensorFlow puts them, and the workers' inputs."""
        super().prepare(data_dir)

        @tf.function
        def per_worker_dataset() -> tf.data.Dataset:
            return self._strategy.distribute_datasets_from_function(
                lambda context: self._training.dataset(_worker_index())
            )

        self._iterator = iter(self._coordinator.create_per_worker_dataset(per_worker_dataset))
        for worker in range(self._experiment.num_workers):
            with tf.device(f"/job:worker/replica:0/task:{worker}"):
                self._initialise(worker)

    def make(
        self, num_steps: int, *, events: bool = False, recorded: bool = True
    ) -> list[tf.Tensor]:
        """Have workers x steps made; all that is needed later is traced meanwhile."""
        several = self._settings.steps_per_dispatch
        functions = {size: self._steps(size, recorded) for size in {1, several}}
        functions = self._functions.setdefault(recorded, functions)
        rounds = [several] * (num_steps // several) + [1] * (num_steps % several)
        made = []
        for size in rounds:
            for _ in range(self._experiment.num_workers):
                made.append(self._coordinator.schedule(functions[size], args=(self._iterator,)))
            if self._settings.join_rounds:
                self._coordinator.join()
        self._coordinator.join()
        with self._strategy.scope():  # as the coordinator traces
            for function in functions.values():
                function.get_concrete_function(self._iterator_spec)
        return made

    def _steps(self, count: int, recorded: bool) -> PolymorphicFunction:
        """A function of so many steps."""

        @tf.function(autograph=False)
        def steps(iterator: Any) -> tf.Tensor:
            self.traces += 1
            # The coordinator alone knows what it hands to a function: it traces the first one.
            self._iterator_spec = tf.type_spec_from_value(iterator)
            worker = _worker_index()
            return tf.stack([self._step(iterator, worker, recorded) for _ in range(count)])

        return steps

    def fetch(self, made: Sequence[Any]) -> Rows:
        """The coordinator has copied every result to this process."""
        return np.concatenate([rows.fetch() for rows in made])

    def placement(self) -> tuple[Plan, Held] | None:
        """Where TensorFlow has put the model's variables.

        Other variables take a turn as well: of a model that is built after it was compiled, those
        of its optimizer come first.  So what is planned is what devices hold.
        """
        servers = self._settings.servers
        plan = make_plan(servers.placement, self.variables, servers.num_ps)
        values = [variable.value for variable in self._training.trainable]
        held = {
            number: {value.device: value.shape.num_elements() * value.dtype.size}
            for number, value in enumerate(values)
        }
        return read_back(plan, held), held


def _worker_index() -> tf.Tensor:
    """Of the worker that executes this: ParameterServerStrategy shards no input by itself."""
    return tf.distribute.coordinator.experimental_get_current_worker_index()
