"""All-reduce: the mean of all workers' gradients, in buckets or in TensorFlow's packs.

In packs, TensorFlow gives every collective of a replica the same ordering token: a pack begins when
the one before has ended, and links are idle in between.  NCCL needs that order, RING does not.  In
buckets, gradients go through RING, several of them under way at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import tensorflow as tf

from .buckets import Messages, Tensor, fill_buckets
from .packing import hold, pack, unpack
from .worker_local import HOST

#: Far from the numbers of TensorFlow's own groups of collectives, which begin at 1.
GROUP_KEY = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Combined:
    """Gradients that the workers have combined.

    Attributes:
        units: what was sent, one per message.
        ready: for each unit, what came back.
        gradients: the mean of each gradient.
    """

    units: list[tf.Tensor]
    ready: list[tf.Tensor]
    gradients: list[tf.Tensor]


class RingMeans:
    """Means of gradients in buckets."""

    def __init__(
        self, shapes: Sequence[tuple[int, ...]], messages: Messages, num_workers: int
    ) -> None:
        """Decide which gradients travel together; a ring cuts each bucket once more."""
        self._shapes, self._messages, self._num_workers = shapes, messages, num_workers
        tensors = [Tensor(tf.TensorShape(shape).num_elements()) for shape in shapes]
        self.buckets = fill_buckets(
            tensors, num_workers * messages.group_size, num_workers * messages.cut_size
        )
        with tf.device(HOST):
            self._steps_begun = tf.Variable(0, dtype=tf.int32)

    def combine(self, gradients: list[tf.Tensor]) -> Combined:
        """Average over all workers."""
        key = self._first_key()
        units = pack(self.buckets, gradients)
        means: list[tf.Tensor] = []
        for number, unit in enumerate(units):
            sent = hold(
                tf.cast(unit, self._messages.number_format), means, self._messages.in_flight
            )
            means.append(self._mean(sent, key + number))
        flats = [tf.cast(mean, tf.float32) for mean in means]
        whole = unpack(self.buckets, flats, self._shapes)
        return Combined(units=units, ready=means, gradients=whole)

    def _first_key(self) -> tf.Tensor:
        """The first of a step's instance keys; steps take turns between two sets.

        One set is too few: a worker may begin a step while another one finishes the step before.
        Two are enough: no worker is two steps behind.  New keys in every step would each set up an
        instance, which TensorFlow keeps forever.
        """
        turn = self._steps_begun.assign_add(1) % 2
        return turn * len(self.buckets)

    def _mean(self, bucket: tf.Tensor, instance_key: tf.Tensor) -> tf.Tensor:
        return tf.raw_ops.CollectiveReduceV2(
            input=bucket,
            group_size=tf.constant(self._num_workers),
            group_key=tf.constant(GROUP_KEY),
            instance_key=instance_key,
            ordering_token=[],
            merge_op="Add",
            final_op="Div",
            communication_hint="ring",
        )


class PackedMeans:
    """Means of gradients in TensorFlow's own packs.

    Attributes:
        options: that MultiWorkerMirroredStrategy is made with, too.
    """

    def __init__(self, bytes_per_pack: int, collective: str) -> None:
        """`collective` is ring, nccl or auto."""
        self.options = tf.distribute.experimental.CommunicationOptions(
            bytes_per_pack=bytes_per_pack,
            implementation=tf.distribute.experimental.CommunicationImplementation(
                collective.upper()
            ),
        )

    def combine(self, gradients: list[tf.Tensor]) -> Combined:
        """Average over all workers."""
        context = tf.distribute.get_replica_context()
        mean = list(context.all_reduce(tf.distribute.ReduceOp.MEAN, gradients, self.options))
        return Combined(units=gradients, ready=mean, gradients=mean)
