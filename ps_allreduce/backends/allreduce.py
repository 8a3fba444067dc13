"""Collective all-reduce: every worker keeps a replica, gradients are averaged among the workers."""

from __future__ import annotations

import tensorflow as tf

from ps_allreduce.backends.mirrored import MirroredWorker


class AllReduce(MirroredWorker):
    """Averages gradients by TensorFlow's collective (RING, NCCL or AUTO), in packs."""

    def combine(self, gradients: list[tf.Tensor]) -> list[tf.Tensor]:
        """The mean over all workers."""
        context = tf.distribute.get_replica_context()
        return list(context.all_reduce(tf.distribute.ReduceOp.MEAN, gradients, self._options))

    def num_messages(self) -> int:
        """One gradient per variable, before packing."""
        return len(self._variables)
