"""Collective all-reduce: every worker keeps a replica, gradients are averaged among the workers.

Decides how gradients are handed to TensorFlow's collectives.  If the experiment states bytes per
pack, TensorFlow packs them itself.  It gives every collective of a replica the same ordering token:
a pack begins when the one before has ended, and links are idle in between.  NCCL needs that order,
RING does not.  Without bytes per pack, gradients go through RING in buckets, several of them under
way at once (decision 0010).
"""

from __future__ import annotations

import tensorflow as tf

from ps_allreduce.backends.buckets import Tensor, fill_buckets
from ps_allreduce.backends.local_worker import MirroredWorker
from ps_allreduce.backends.packing import hold, pack, unpack
from ps_allreduce.backends.protocol import Task
from ps_allreduce.backends.worker_step import Exchanged
from ps_allreduce.point.strategies import AllReduce
from ps_allreduce.point.wire import Collective, Wire
from ps_allreduce.workloads.program import Program
from ps_allreduce.workloads.worker_local import HOST

IMPLEMENTATIONS = {
    Collective.RING: tf.distribute.experimental.CommunicationImplementation.RING,
    Collective.NCCL: tf.distribute.experimental.CommunicationImplementation.NCCL,
    Collective.AUTO: tf.distribute.experimental.CommunicationImplementation.AUTO,
}

#: Far from the numbers of TensorFlow's own groups of collectives, which begin at 1.
GROUP_KEY = 1 << 20


class AllReduceBackend(MirroredWorker):
    """Averages gradients by TensorFlow's collectives."""

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        strategy = task.experiment.strategy
        assert isinstance(strategy, AllReduce)
        #: How gradients travel in buckets; None for TensorFlow's packs.
        self._wire = strategy.wire
        if strategy.bytes_per_pack is not None:
            self._options = tf.distribute.experimental.CommunicationOptions(
                bytes_per_pack=strategy.bytes_per_pack,
                implementation=IMPLEMENTATIONS[strategy.collective],
            )

    def build(self, program: Program) -> None:
        """Decide which gradients travel together."""
        super().build(program)
        if self._wire is None:
            return
        wire = self._wire
        self._shapes = [tuple(variable.shape) for variable in self._variables]
        tensors = [Tensor(variable.shape.num_elements()) for variable in self._variables]
        parts = self._task.experiment.num_workers
        self._buckets = fill_buckets(tensors, parts * wire.group_size, parts * wire.cut_size)
        with tf.device(HOST):
            self._steps_begun = tf.Variable(0, dtype=tf.int32)

    def exchange(self, gradients: list[tf.Tensor]) -> Exchanged:
        """Apply the mean over all workers."""
        if self._wire is not None:
            return self._by_buckets(gradients, self._wire)
        context = tf.distribute.get_replica_context()
        mean = list(context.all_reduce(tf.distribute.ReduceOp.MEAN, gradients, self._options))
        return self.apply(gradients, mean, mean)

    def _by_buckets(self, gradients: list[tf.Tensor], wire: Wire) -> Exchanged:
        key = self._first_key()
        units = pack(self._buckets, gradients)
        means: list[tf.Tensor] = []
        for number, unit in enumerate(units):
            sent = hold(tf.cast(unit, wire.gradients), means, wire.in_flight)
            means.append(self._mean(sent, key + number))
        flats = [tf.cast(mean, tf.float32) for mean in means]
        return self.apply(units, means, unpack(self._buckets, flats, self._shapes))

    def _first_key(self) -> tf.Tensor:
        """The first of a step's instance keys; steps take turns between two sets.

        One set is too few: a worker may begin a step while another one finishes the step before.
        Two are enough: no worker is two steps behind.  New keys in every step would each set up an
        instance, which TensorFlow keeps forever.
        """
        turn = self._steps_begun.assign_add(1) % 2
        return turn * len(self._buckets)

    def _mean(self, bucket: tf.Tensor, instance_key: tf.Tensor) -> tf.Tensor:
        num_workers = self._task.experiment.num_workers
        return tf.raw_ops.CollectiveReduceV2(
            input=bucket,
            group_size=tf.constant(num_workers),
            group_key=tf.constant(GROUP_KEY),
            instance_key=instance_key,
            ordering_token=[],
            merge_op="Add",
            final_op="Div",
            communication_hint="ring",
        )

    def num_messages(self) -> int:
        """One per bucket; with TensorFlow's packs one per variable, as before packing."""
        return len(self._variables) if self._wire is None else len(self._buckets)
