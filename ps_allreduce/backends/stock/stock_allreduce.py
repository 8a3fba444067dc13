"""MultiWorkerMirroredStrategy, as the tutorial writes it.

Source: tensorflow.org/tutorials/distribute/multi_worker_with_ctl.
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
from ps_allreduce.point.strategies import StockAllReduce


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
