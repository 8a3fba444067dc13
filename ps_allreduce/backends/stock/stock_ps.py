"""ParameterServerStrategy with a ClusterCoordinator, as the tutorial writes it.

Source: tensorflow.org/tutorials/distribute/parameter_server_training.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.types.experimental import PolymorphicFunction

from ps_allreduce.backends.contract import Rows, Task
from ps_allreduce.backends.stock.backend import StockBackend
from ps_allreduce.cluster import TaskType, TfConfig
from ps_allreduce.point.placement import Held, Plan, make_plan, read_back
from ps_allreduce.point.strategies import StockServers

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
        self._initialise_workers()

    def _initialise_workers(self) -> None:
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
