"""What strategies on MultiWorkerMirroredStrategy share: set-up, placement and agreement."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from ps_allreduce.backends.local_worker import LocalWorker
from ps_allreduce.point.experiment import Collective

_IMPLEMENTATIONS = {
    Collective.RING: tf.distribute.experimental.CommunicationImplementation.RING,
    Collective.NCCL: tf.distribute.experimental.CommunicationImplementation.NCCL,
    Collective.AUTO: tf.distribute.experimental.CommunicationImplementation.AUTO,
}


class MirroredWorker(LocalWorker):
    """A worker inside MultiWorkerMirroredStrategy; one device per worker process."""

    def connect(self) -> None:
        """Return once the strategy has seen all workers."""
        tf_config = self._task.tf_config
        if tf_config is None:
            raise ValueError("workers of a cluster need a TF_CONFIG")
        # TensorFlow reads the variable when the strategy object is made
        # (tensorflow/tensorflow#31154).
        os.environ["TF_CONFIG"] = tf_config.render()
        experiment = self._task.experiment
        self._options = None
        if experiment.bytes_per_pack is not None:
            self._options = tf.distribute.experimental.CommunicationOptions(
                bytes_per_pack=experiment.bytes_per_pack,
                implementation=_IMPLEMENTATIONS[experiment.collective or Collective.RING],
            )
        self._strategy = tf.distribute.MultiWorkerMirroredStrategy(
            communication_options=self._options
        )

    def agree(self, value: float) -> float:
        """The largest of all workers' values."""
        replica_value = self._strategy.run(lambda: tf.constant([value], tf.float64))
        return float(np.max(self._strategy.gather(replica_value, axis=0).numpy()))

    def _make_variable(self, value: npt.NDArray[np.float32]) -> Any:
        with self._strategy.scope():
            return self._strategy.experimental_local_results(tf.Variable(value))[0]

    def _place(self, step: Any) -> Any:
        return lambda *arguments: self._strategy.run(step, args=arguments)
