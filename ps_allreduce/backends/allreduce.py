"""Collective all-reduce: every worker keeps a replica, gradients are averaged among the workers.

Decides how gradients are handed to TensorFlow's collectives.  Where bytes per pack are stated, by
TensorFlow's own packs: it gives every collective of a replica the same ordering token, so that one
pack begins when the one before has ended, and links lie idle while a pack starts and ends.  NCCL
needs that order, RING does not.  Otherwise gradients go through RING in buckets, of which several
are under way at once (decision 0010).
"""

from __future__ import annotations

import tensorflow as tf

from ps_allreduce.backends.buckets import Tensor, fill_buckets
from ps_allreduce.backends.local_worker import Combined
from ps_allreduce.backends.mirrored import MirroredWorker
from ps_allreduce.backends.packing import hold, pack, unpack
from ps_allreduce.workloads.program import Program
from ps_allreduce.workloads.worker_local import HOST

#: The strategy counts its own groups of collectives from 1.
GROUP_KEY = 1 << 20


class AllReduce(MirroredWorker):
    """Averages gradients by TensorFlow's collectives."""

    def build(self, program: Program) -> None:
        """Decide which gradients travel together."""
        super().build(program)
        wire = self._task.experiment.wire
        self._shapes = [tuple(variable.shape) for variable in self._variables]
        tensors = [Tensor(variable.shape.num_elements()) for variable in self._variables]
        parts = self._task.experiment.num_workers
        self._buckets = fill_buckets(tensors, parts * wire.group_size, parts * wire.cut_size)
        with tf.device(HOST):
            self._steps_begun = tf.Variable(0, dtype=tf.int32)

    def combine(self, gradients: list[tf.Tensor]) -> Combined:
        """The mean over all workers."""
        if self._options is None:
            return self._by_buckets(gradients)
        context = tf.distribute.get_replica_context()
        mean = list(context.all_reduce(tf.distribute.ReduceOp.MEAN, gradients, self._options))
        return Combined(units=gradients, ready=mean, gradients=mean)

    def _by_buckets(self, gradients: list[tf.Tensor]) -> Combined:
        wire = self._task.experiment.wire
        key = self._first_key()
        units = pack(self._buckets, gradients)
        means: list[tf.Tensor] = []
        for number, unit in enumerate(units):
            sent = hold(tf.cast(unit, wire.gradients), means, wire.in_flight)
            means.append(self._mean(sent, key + number))
        flats = [tf.cast(mean, tf.float32) for mean in means]
        whole = unpack(self._buckets, flats, self._shapes)
        return Combined(units=units, ready=means, gradients=whole)

    def _first_key(self) -> tf.Tensor:
        """Instance keys take turns between two sets.

        A worker may begin a step while another one still finishes the step before, never two steps
        before: nothing of a key's last use is left when it is used again, and TensorFlow need not
        set up a new instance in every step, which it would keep forever.
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
        """One per bucket; with TensorFlow's packs one gradient per variable, before packing."""
        return len(self._buckets) if self._options is None else len(self._variables)
