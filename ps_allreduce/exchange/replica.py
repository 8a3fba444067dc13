"""The parameters that a worker keeps for itself, and the processes that each keep some.

Decides how such a worker makes variables and steps, alone or inside MultiWorkerMirroredStrategy.
`ring` decides how gradients are combined.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from .steps import on_device
from .updates import UpdateRule

Array = npt.NDArray[np.float32]


class Alone:
    """A worker without others."""

    def __init__(self, device: str) -> None:
        self._device = device

    def make_variable(self, value: Array) -> Any:
        """A variable on the worker's device."""
        with tf.device(self._device):
            return tf.Variable(value)

    def place(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap a function of this worker as the strategy needs it."""
        return on_device(self._device, function)

    def largest(self, value: float) -> float:
        """The largest value of all workers."""
        return value


class Mirrored:
    """A worker among others that keep the same; one device per worker process.

    TensorFlow reads the environment variable TF_CONFIG when it makes the strategy object
    (tensorflow/tensorflow#31154).
    """

    def __init__(self, options: Any = None) -> None:
        """Return once all workers are there; `options` say how TensorFlow packs, where it does."""
        self._strategy = tf.distribute.MultiWorkerMirroredStrategy(communication_options=options)

    def make_variable(self, value: Array) -> Any:
        """A variable on the worker's device."""
        with self._strategy.scope():
            return self._strategy.experimental_local_results(tf.Variable(value))[0]

    def place(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap a function of this worker as the strategy needs it."""
        return lambda *arguments: self._strategy.run(function, args=arguments)

    def largest(self, value: float) -> float:
        """The largest value of all workers."""
        replica_value = self._strategy.run(lambda: tf.constant([value], tf.float64))
        return float(np.max(self._strategy.gather(replica_value, axis=0).numpy()))


class Replica:
    """A worker's own copy of the trainable variables, with their slots beside them.

    Attributes:
        variables: in creation order.
        slots: of every variable.
    """

    def __init__(
        self,
        values: Sequence[Array],
        rule: UpdateRule,
        make_variable: Callable[[Array], Any],
    ) -> None:
        self._rule = rule
        self.variables = [make_variable(value) for value in values]
        self.slots = [
            [make_variable(np.zeros(shape, np.float32)) for shape in rule.slots(value.shape)]
            for value in values
        ]

    def values(self) -> list[tf.Tensor]:
        """Read this worker's own copy.

        An identity after each read, as `read_value` adds it, would stay where a clock waits for it.
        """
        return [
            tf.raw_ops.ReadVariableOp(resource=variable.handle, dtype=variable.dtype)
            for variable in self.variables
        ]

    def apply(self, gradients: Sequence[tf.Tensor]) -> list[tf.Operation]:
        """Apply gradients that the workers have combined, one per trainable variable."""
        updates = zip(self.variables, self.slots, gradients, strict=True)
        return [
            self._rule.apply(variable.handle, [slot.handle for slot in slots], gradient)
            for variable, slots, gradient in updates
        ]

    def read(self) -> list[Array]:
        """The whole variables."""
        return [variable.numpy() for variable in self.variables]

    def read_slots(self) -> list[list[Array]]:
        """The slots of every variable."""
        return [[slot.numpy() for slot in slots] for slots in self.slots]

    def restore_slots(self, slots: Sequence[Sequence[Array]]) -> None:
        """Give the slots of every variable the values that were read before."""
        for variables, values in zip(self.slots, slots, strict=True):
            for variable, value in zip(variables, values, strict=True):
                variable.assign(value)
