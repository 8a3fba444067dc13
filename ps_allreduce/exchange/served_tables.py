"""Tables on parameter servers: one variable on each server holds its rows of all tables.

A worker fetches the unique rows that it looks up, of each server at once, and sends as many
gradients of rows back.  An asynchronous server applies them as they come.  A synchronous one waits
for those of all workers, sums up what several have sent of one row, divides by the number of
workers, applies it once, and hands every worker a token.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from .lookups import summed
from .own_tables import gathered, stacked, stacked_slots, unstacked, unstacked_slots
from .stacking import Stack
from .steps import server_device
from .updates import UpdateRule

Array = npt.NDArray[Any]


class ServedTables:
    """Rows on servers, and what workers and servers do with them.

    Attributes:
        stack: which rows are where.
        variables: of each server, its rows.
        rule: what changes them.
    """

    def __init__(self, stack: Stack, tables: Sequence[Array], rule: UpdateRule) -> None:
        """Create rows and slots on the servers."""
        self.stack, self.rule = stack, rule
        whole = stacked(stack, tables)
        self.width = int(whole.shape[1])
        self.variables: list[Any] = []
        self._slots: list[list[Any]] = []
        for server in self._servers:
            with tf.device(server_device(server)):
                own = self._of_server(whole, server)
                self.variables.append(tf.Variable(own))
                self._slots.append(
                    [
                        tf.Variable(tf.fill(shape, rule.first_slot_value))
                        for shape in rule.slots(own.shape)
                    ]
                )

    def ruled_by(self, rule: UpdateRule) -> ServedTables:
        """The same rows and slots, changed by another rule with such slots."""
        other = copy(self)
        other.rule = rule
        return other

    @property
    def _servers(self) -> range:
        return range(self.stack.num_servers)

    def fetch(self, numbers: tf.Tensor) -> tf.Tensor:
        """Rows [k, width] from their servers, in the order of their numbers [k]."""
        wanted = self._dealt(tf.range(tf.size(numbers)), numbers)
        rows = []
        for server, places in enumerate(self._dealt(self._places(numbers), numbers)):
            with tf.device(server_device(server)):
                found = gathered(self.variables[server], places)
            rows.append(tf.identity(found))
        return tf.ensure_shape(tf.dynamic_stitch(wanted, rows), [None, self.width])

    def slices(self, gradient: tf.IndexedSlices) -> list[tf.IndexedSlices]:
        """What each server gets of a gradient: its rows, by their places there."""
        numbers = gradient.indices
        places = self._dealt(self._places(numbers), numbers)
        values = self._dealt(gradient.values, numbers)
        return [tf.IndexedSlices(*part) for part in zip(values, places, strict=True)]

    def apply(self, server: int, gradient: tf.IndexedSlices) -> tf.Operation:
        """Change rows of a server, on it; the gradient has every row once."""
        with tf.device(server_device(server)):
            slots = [slot.handle for slot in self._slots[server]]
            return self.rule.apply_rows(self.variables[server].handle, slots, gradient)

    def read_whole(self) -> list[Array]:
        """The tables, fetched to the chief."""
        return unstacked(self.stack, self._whole(self.variables))

    def read_slots(self) -> list[list[Array]]:
        """The slots of every table; a number that a server keeps once is all tables'."""
        kinds = zip(*self._slots, strict=True)
        kept = [self._whole(k) if k[0].shape.rank else k[0].numpy() for k in kinds]
        return unstacked_slots(self.stack, kept)

    def restore(self, tables: Sequence[Array], slots: Sequence[Sequence[Array]]) -> None:
        """Give tables and slots the values that were read before."""
        whole, kept = stacked(self.stack, tables), stacked_slots(self.stack, slots)
        for server in self._servers:
            self.variables[server].assign(self._of_server(whole, server))
            for slot, value in zip(self._slots[server], kept, strict=True):
                slot.assign(self._of_server(value, server) if value.ndim else value)

    def _of_server(self, whole: Array, server: int) -> Array:
        """A server's rows of all that the stack numbers."""
        return whole[server :: self.stack.num_servers][: self.stack.places_on(server)]

    def _whole(self, variables: Sequence[Any]) -> Array:
        """All rows as the stack numbers them, from those of each server."""
        whole = np.zeros((self.stack.length, self.width), np.float32)
        for server, variable in enumerate(variables):
            self._of_server(whole, server)[:] = variable.numpy()
        return whole

    def _places(self, numbers: tf.Tensor) -> tf.Tensor:
        return numbers // self.stack.num_servers

    def _dealt(self, values: tf.Tensor, numbers: tf.Tensor) -> list[tf.Tensor]:
        """Each server's part of some values, one for each number."""
        servers = tf.cast(numbers % self.stack.num_servers, tf.int32)
        parts: list[tf.Tensor] = tf.dynamic_partition(values, servers, self.stack.num_servers)
        return parts


class SynchronousTables:
    """Queues on servers, for gradients of rows and for tokens."""

    def __init__(self, tables: ServedTables, num_workers: int) -> None:
        self._tables, self._num_workers = tables, num_workers
        servers, workers = range(tables.stack.num_servers), range(num_workers)
        self._gradients = [
            self._queue(server, [tf.float32, tf.int64], "rows", 2 * num_workers)
            for server in servers
        ]
        #: Of each server: its next call may begin.  Calls that were begun ahead would each take
        #: some workers' gradients, and wait for the others forever.
        self._turns = [self._queue(server, [tf.int64], "row_turn", 1) for server in servers]
        for server in servers:
            self._give(self._turns[server], server)
        #: For every worker, a queue of tokens per server.
        self.tokens = [
            [self._queue(server, [tf.int64], f"row_tokens/{worker}", 4) for server in servers]
            for worker in workers
        ]

    @staticmethod
    def _queue(server: int, types: list[tf.DType], name: str, capacity: int) -> tf.Tensor:
        with tf.device(server_device(server)):
            return tf.raw_ops.FIFOQueueV2(
                component_types=types,
                shapes=[[]] if len(types) == 1 else [],
                capacity=capacity,
                shared_name=f"{name}/{server}",
            )

    @staticmethod
    def _give(queue: tf.Tensor, server: int) -> tf.Operation:
        with tf.device(server_device(server)):
            return tf.raw_ops.QueueEnqueueV2(handle=queue, components=[tf.constant(0, tf.int64)])

    def send(self, gradient: tf.IndexedSlices, tokens: Sequence[tf.Tensor]) -> list[tf.Operation]:
        """Send each server its part; the last of these operations end when all was applied."""
        done = []
        for server, part in enumerate(self._tables.slices(gradient)):
            with tf.device(server_device(server)):
                sent = tf.raw_ops.QueueEnqueueV2(
                    handle=self._gradients[server], components=[part.values, part.indices]
                )
                with tf.control_dependencies([sent]):
                    (token,) = tf.raw_ops.QueueDequeueV2(
                        handle=tokens[server], component_types=[tf.int64]
                    )
            done.append(token.op)
        return done

    def apply_mean(self, server: int) -> list[tf.Operation]:
        """One update of a server's rows, once all workers have sent theirs."""
        turn = tf.raw_ops.QueueDequeueV2(handle=self._turns[server], component_types=[tf.int64])
        with tf.control_dependencies(turn):
            sent = [
                tf.raw_ops.QueueDequeueV2(
                    handle=self._gradients[server], component_types=[tf.float32, tf.int64]
                )
                for _ in range(self._num_workers)
            ]
        values = [tf.ensure_shape(each, [None, self._tables.width]) for each, _ in sent]
        places = [tf.ensure_shape(each, [None]) for _, each in sent]
        total = summed(tf.IndexedSlices(tf.concat(values, 0), tf.concat(places, 0)))
        mean = tf.IndexedSlices(total.values / self._num_workers, total.indices)
        with tf.control_dependencies([self._tables.apply(server, mean)]):
            queues = [self._turns[server], *(tokens[server] for tokens in self.tokens)]
            return [self._give(queue, server) for queue in queues]
