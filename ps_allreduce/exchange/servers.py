"""Parameter servers: gradients go to the server of their bucket, and new values come back.

Decides how a chief gets to its cluster, what workers hold, and in which order buckets travel.  When
a server applies a gradient, and who waits for whom, `synchronous` and `asynchronous` decide.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, wait
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from .buckets import Messages
from .private_api import memory_device
from .served import ServedTables, ServedVariables
from .steps import Exchanged, Step, hold, on_device, server_device
from .worker_local import LocalVariable, assign

#: Addresses (`host:port`) of all tasks by type.
Cluster = Mapping[str, Sequence[str]]

ROWS_PER_FETCH = 500


def connect() -> Any:
    """TensorFlow's coordinator of the cluster that TF_CONFIG tells of; all tasks listen already."""
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    strategy = tf.distribute.ParameterServerStrategy(resolver)
    return tf.distribute.coordinator.ClusterCoordinator(strategy)


def make_server(
    cluster: Cluster, kind: str, index: int, *, intra: int, inter: int, collective: bool = False
) -> Any:
    """A parameter server, or a worker that a chief drives; it serves until it is gone.

    A server takes its thread pools from here, not from `tf.config.threading`.

    Args:
        collective: workers average gradients among themselves; the first one tells who they are.
    """
    config = tf.compat.v1.ConfigProto(
        intra_op_parallelism_threads=intra, inter_op_parallelism_threads=inter
    )
    if collective:
        config.experimental.collective_group_leader = "/job:worker/replica:0/task:0"
    return tf.distribute.Server(
        tf.train.ClusterSpec(dict(cluster)),
        job_name=kind,
        task_index=index,
        protocol="grpc",
        config=config,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """Buckets on their way.

    Attributes:
        pushed: what acknowledges each bucket's gradient.
        arrived: each bucket's new value, on the worker.
    """

    pushed: list[tf.Operation]
    arrived: list[tf.Tensor]


#: Applies a bucket's gradient on its server.  Returns what acknowledges the gradient, and what must
#: have ended before the new value is read.
Update = Callable[[int, tf.Tensor], tuple[tf.Operation, tf.Operation]]

#: Sends one tensor per bucket.
Send = Callable[[Sequence[tf.Tensor]], Sent]


class ServerExchange(ABC):
    """What a chief makes workers and servers do."""

    def __init__(
        self,
        served: ServedVariables,
        messages: Messages,
        num_workers: int,
        device: str,
        tables: ServedTables | None = None,
    ) -> None:
        """`device` is that on which workers compute; `tables` hold rows that are looked up."""
        self.served, self._tables = served, tables
        self._messages, self._num_workers, self._device = messages, num_workers, device
        self._values = [
            LocalVariable(f"value/{i}", tf.float32, shape) for i, shape in enumerate(served.shapes)
        ]

    def prepare(self) -> list[tf.Operation]:
        """Bring the parameters to the worker that executes this, before its first step."""
        return self._store(self.served.read())

    @abstractmethod
    def trace(self, step: Step) -> Any:
        """What `make` has made: the step as a function of every worker."""

    @abstractmethod
    def make(self, traced: Any, num_steps: int) -> list[tf.Tensor]:
        """Make so many steps on every worker; what they return stays where it was made."""

    def on_device(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """A function of a worker, on the device that workers compute on."""
        return on_device(self._device, function)

    def values(self) -> list[tf.Tensor]:
        """What the worker holds: the values that its last exchange has brought."""
        return [variable.read(variable.handle()) for variable in self._values]

    def newest(self) -> list[tf.Tensor]:
        """What servers hold now, brought to the worker that executes this."""
        return self.served.assemble([tf.identity(flat) for flat in self.served.read()])

    def _store(self, flats: Sequence[tf.Tensor]) -> list[tf.Operation]:
        """Store values of all buckets on the worker that executes this."""
        whole = self.served.assemble([tf.identity(flat) for flat in flats])
        return [assign(v.handle(), value) for v, value in zip(self._values, whole, strict=True)]

    def _exchange(self, gradients: Sequence[tf.Tensor], send: Send) -> Exchanged:
        """Hand the gradients' buckets to `send`, and store what it brings back."""
        units = self.served.pack(gradients)
        sent = send(units)
        done = self._store(sent.arrived)
        return Exchanged(units=units, pushed=sent.pushed, pulled=sent.arrived, done=done)

    def _send(self, units: Sequence[tf.Tensor], update: Update) -> Sent:
        """Send every bucket to its server and fetch its new value as soon as it may be read.

        Buckets follow one another.  While one is on its way to a server, the value of an earlier
        one comes back: both directions of a link are in use.  A bucket is under way until its value
        is back.  If it counted until it is sent, a worker could run ahead of the others: it would
        take their share of the server's link, and the values that it waits for would come later.
        """
        messages = self._messages
        back: dict[int, list[tf.Tensor]] = {}
        pushed, arrived = [], []
        for number, (bucket, unit) in enumerate(zip(self.served.buckets, units, strict=True)):
            earlier = back.setdefault(bucket.server, [])
            sent = hold(tf.cast(unit, messages.number_format), earlier, messages.in_flight)
            with tf.device(server_device(bucket.server)):
                done, readable = update(number, tf.cast(sent, tf.float32))
                with tf.control_dependencies([readable]):
                    value = self.served.variables[number].read_value()
            pushed.append(done)
            arrived.append(tf.identity(value))
            earlier.append(arrived[-1])
        return Sent(pushed=pushed, arrived=arrived)


def fetch(made: Sequence[tf.Tensor]) -> npt.NDArray[np.float64]:
    """Bring rows, or matrices of them, from their workers to the chief.

    Each worker stacks its rows first: a round trip per row would take long.
    """
    same_place: dict[tuple[str, tuple[int, ...]], list[tf.Tensor]] = {}
    for row in made:
        same_place.setdefault((memory_device(row), tuple(row.shape)), []).append(row)
    stacks = []
    for (device, shape), rows_there in same_place.items():
        with tf.device(device):
            for start in range(0, len(rows_there), ROWS_PER_FETCH):
                stack = tf.stack(rows_there[start : start + ROWS_PER_FETCH]).numpy()
                stacks.append(stack.reshape(-1, shape[-1]))
    return np.concatenate(stacks)


def raise_first(futures: list[Future[list[tf.Tensor]]]) -> None:
    """Wait for all; raise at once if one fails, because the others may wait for it forever."""
    done, _ = wait(futures, return_when=FIRST_EXCEPTION)
    for future in done:
        if error := future.exception():
            raise error
