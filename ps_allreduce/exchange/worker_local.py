"""Resources that live on one worker and are found by name.

A step function runs on the worker, but under parameter servers it is traced once on the chief.
Names let the same function find the variables and iterators of whichever worker executes it.
Create a handle once per traced function: TensorFlow orders the operations on a resource by the
handle they use.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import tensorflow as tf

#: The processors of whichever worker executes a function.
HOST = "/device:CPU:0"


@dataclass(frozen=True, slots=True)
class LocalVariable:
    """A variable of one worker."""

    name: str
    dtype: tf.DType
    shape: tuple[int, ...]

    def handle(self) -> tf.Tensor:
        """The resource on the device that executes the function."""
        return tf.raw_ops.VarHandleOp(shared_name=self.name, dtype=self.dtype, shape=self.shape)

    def read(self, handle: tf.Tensor) -> tf.Tensor:
        """The present value."""
        value = tf.raw_ops.ReadVariableOp(resource=handle, dtype=self.dtype)
        value.set_shape(self.shape)
        return value


def assign(handle: tf.Tensor, value: tf.Tensor) -> tf.Operation:
    """Give a local variable a value, creating it where there is none yet."""
    return tf.raw_ops.AssignVariableOp(resource=handle, value=value)


@dataclass(frozen=True, slots=True)
class LocalCounter:
    """Counts the steps that a worker begins."""

    name: str

    def _handle(self) -> tf.Tensor:
        return LocalVariable(self.name, tf.int32, ()).handle()

    def start(self) -> tf.Operation:
        """Begin at zero; needed before the first step."""
        with tf.device(HOST):
            return assign(self._handle(), tf.constant(0))

    def count(self) -> tf.Tensor:
        """One more, and the new number."""
        with tf.device(HOST):
            handle = self._handle()
            counted = tf.raw_ops.AssignAddVariableOp(resource=handle, value=tf.constant(1))
            with tf.control_dependencies([counted]):
                return tf.raw_ops.ReadVariableOp(resource=handle, dtype=tf.int32)


@dataclass(frozen=True, slots=True)
class LocalTurn:
    """Makes functions that were begun ahead run one after the other on a worker."""

    name: str

    def _queue(self) -> tf.Tensor:
        with tf.device(HOST):
            return tf.raw_ops.FIFOQueueV2(
                component_types=[tf.int32], shapes=[[]], capacity=1, shared_name=self.name
            )

    def give(self) -> tf.Operation:
        """Let the next function go on; the first one needs this too."""
        queue = self._queue()
        with tf.device(HOST):
            return tf.raw_ops.QueueEnqueueV2(handle=queue, components=[tf.constant(0)])

    def take(self) -> tf.Tensor:
        """Wait until the function before has given the turn."""
        queue = self._queue()
        with tf.device(HOST):
            return tf.raw_ops.QueueDequeueV2(handle=queue, component_types=[tf.int32])[0]


@dataclass(frozen=True, slots=True)
class LocalIterator:
    """An iterator of one worker over a dataset whose elements are tuples of tensors.

    It stays on the processors: TensorFlow would put it on a GPU, and expect its elements there.
    """

    name: str
    specs: Sequence[tf.TensorSpec]

    def handle(self) -> tf.Tensor:
        """The resource on the device that executes the function."""
        with tf.device(HOST):
            return tf.raw_ops.IteratorV2(
                shared_name=self.name,
                container="",
                output_types=[spec.dtype for spec in self.specs],
                output_shapes=[spec.shape for spec in self.specs],
            )

    def start(self, dataset: tf.data.Dataset) -> tf.Operation:
        """Begin to iterate over a dataset that was built on this worker."""
        variant = tf.data.experimental.to_variant(dataset)
        handle = self.handle()
        with tf.device(HOST):
            return tf.raw_ops.MakeIterator(dataset=variant, iterator=handle)

    def next(self, handle: tf.Tensor) -> list[tf.Tensor]:
        """The next element."""
        with tf.device(HOST):
            return list(
                tf.raw_ops.IteratorGetNext(
                    iterator=handle,
                    output_types=[spec.dtype for spec in self.specs],
                    output_shapes=[spec.shape for spec in self.specs],
                )
            )
