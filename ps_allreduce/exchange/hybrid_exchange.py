"""Tables on parameter servers, all other variables on every worker and averaged among workers.

Synchronous, with a chief.  Rows are fetched, sent and applied as with synchronous servers.  The
other gradients go around the workers' ring in buckets (Kim et al., "Parallax: Sparsity-aware Data
Parallel Training of Deep Neural Networks", EuroSys 2019, calls it a hybrid).  Since the chief
traces one step for all workers, a worker's own variables are found by their names.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from .buckets import Bucket, Messages
from .replica import Replica, RingMeans
from .served import ServedTables, ServedVariables
from .steps import Exchanged, Step, on_device, worker_device
from .synchronous import SynchronousExchange
from .updates import UpdateRule
from .worker_local import LocalVariable, assign

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Named:
    """A variable of whichever worker executes a function."""

    handle: tf.Tensor
    dtype: tf.DType


class NamedVariables:
    """Makes variables that are found by the order in which they are asked for."""

    def __init__(self, *, fill: bool) -> None:
        """`fill` gives them the values that they are asked for with, else they have one already."""
        self._fill, self._count = fill, 0

    def __call__(self, value: Array) -> Named:
        """The next variable, of the shape of the value."""
        variable = LocalVariable(f"own/{self._count}", tf.float32, np.shape(value))
        self._count += 1
        handle = variable.handle()
        if self._fill:
            assign(handle, tf.constant(value))
        return Named(handle, variable.dtype)


class HybridExchange(SynchronousExchange):
    """Drives workers, which have their own copies, and servers, which have the tables."""

    def __init__(
        self,
        values: Sequence[Array],
        rule: UpdateRule,
        messages: Messages,
        num_workers: int,
        num_servers: int,
        device: str,
        tables: ServedTables,
    ) -> None:
        """Give every worker the initial values of what is not on servers."""
        nothing = ServedVariables((), messages, rule, ())
        super().__init__(nothing, messages, num_workers, num_servers, device, (), tables)
        self._initial, self._rule = values, rule
        shapes = [np.shape(value) for value in values]
        self._means = RingMeans(shapes, messages, num_workers)
        for worker in range(num_workers):
            self._on_worker(worker, lambda: self._replica(fill=True))

    @property
    def buckets(self) -> tuple[Bucket, ...]:
        """What goes around the ring."""
        return self._means.buckets

    def prepare(self) -> list[tf.Operation]:
        """Also begin to count steps."""
        return [*super().prepare(), *self._means.prepare()]

    def newest(self) -> list[tf.Tensor]:
        """What the worker holds, which no other one is ahead of."""
        return self._replica().values()

    def read_own(self, worker: int) -> list[tf.Tensor]:
        """A worker's own variables."""
        values: list[tf.Tensor] = self._on_worker(worker, lambda: self._replica().values())
        return values

    def _replica(self, *, fill: bool = False) -> Replica:
        """The variables of the worker that executes this."""
        return Replica(self._initial, self._rule, NamedVariables(fill=fill))

    def _on_worker(self, worker: int, function: Any) -> Any:
        with tf.device(worker_device(worker)):
            return on_device(self._device, function)()

    def _step_with(self, step: Step, worker: int, queues: tuple[tf.Tensor, ...]) -> tf.Tensor:
        """A worker's step; the queues are those of its rows."""
        replica = self._replica()

        def exchange(
            gradients: list[tf.Tensor], table_gradient: tf.IndexedSlices | None = None
        ) -> Exchanged:
            combined = self._means.combine(gradients)
            done = replica.apply(combined.gradients)
            assert self._rows is not None
            assert table_gradient is not None
            exchanged = Exchanged(
                units=combined.units, pushed=combined.ready, pulled=combined.ready, done=done
            )
            return exchanged.also(self._rows.send(table_gradient, queues))

        return step(replica.values, exchange)
