"""What a step is made of, and where its parts run.

A step begins with values on the worker and ends when the next values are there.  It is traced by a
function that gets two others: one returns what the worker holds, the other exchanges gradients.

A worker's functions name a part of the device, `/device:GPU:0`.  TensorFlow then takes that of the
worker that executes them.  What stays on the processors says so where it is made.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import tensorflow as tf
from tensorflow.types.experimental import PolymorphicFunction

from .private_api import leave_unordered

#: Something to wait for.
Milestones = Sequence[tf.Tensor | tf.Operation]


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchanged:
    """What an exchange yields: gradients on their way, and the values that they lead to.

    Attributes:
        units: what is sent, one per message.
        pushed: for each unit, what is ready once the unit was combined or acknowledged.
        pulled: for each unit, what is ready once its new value is on the worker.
        done: everything that the next step needs.
        rows: what is ready once gradients of rows were applied; empty without sparse embeddings.
    """

    units: list[tf.Tensor]
    pushed: Milestones
    pulled: Milestones
    done: Milestones
    rows: Milestones = ()

    def also(self, rows: Milestones) -> Exchanged:
        """The same with gradients of rows, whose end the next step needs too."""
        return replace(self, done=[*self.done, *rows], rows=rows)


#: The trainable variables, whole, in creation order, as the worker holds them.
Values = Callable[[], list[tf.Tensor]]


class Exchange(Protocol):
    """Combines and applies gradients, and brings the new values to the worker."""

    def __call__(
        self, gradients: list[tf.Tensor], table_gradient: tf.IndexedSlices | None = None
    ) -> Exchanged:
        """The last is of the rows that a step has looked up, each once; they are not brought."""


#: Traces a step; what it returns stays on the worker until it is fetched.
Step = Callable[[Values, Exchange], tf.Tensor]


def traced_function(function: Callable[..., tf.Tensor]) -> PolymorphicFunction:
    """A TensorFlow function without AutoGraph, which would take a second to rewrite it."""
    leave_unordered()
    return tf.function(function, autograph=False)


def on_device(device: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, with its operations on the device of the worker that executes it."""

    def placed(*arguments: Any) -> Any:
        with tf.device(device):
            return function(*arguments)

    return placed


def server_device(server: int) -> str:
    """Device of a parameter server."""
    return f"/job:ps/replica:0/task:{server}/device:CPU:0"


def worker_device(worker: int) -> str:
    """The processors of a worker: its functions begin there, even if they compute on a GPU."""
    return f"/job:worker/replica:0/task:{worker}/device:CPU:0"
