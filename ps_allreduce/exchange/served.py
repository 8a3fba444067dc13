"""What is on parameter servers: variables, one of TensorFlow's per bucket, and rows of tables.

The chief creates every bucket on the server that a plan names, with its slots beside it.  One
variable on each server holds its rows of all tables whose rows are exchanged alone.

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

from .buckets import Messages, Part, Tensor, fill_buckets, holders
from .lookups import summed
from .own_tables import gathered, stacked, stacked_slots, unstacked, unstacked_slots
from .stacking import Stack
from .steps import pack, server_device, unpack
from .updates import UpdateRule

Array = npt.NDArray[np.float32]


class ServedVariables:
    """Buckets, their slots, and what the optimizer does to them.

    Attributes:
        buckets: in the order in which they are sent.
        variables: one per bucket.
        shapes: of the whole variables.
        rule: what changes them.
    """

    def __init__(
        self,
        parts: Sequence[Part],
        messages: Messages,
        rule: UpdateRule,
        values: Sequence[Array],
    ) -> None:
        """Create buckets and slots; `values` are whole variables in creation order."""
        self._parts, self.rule = parts, rule
        self.shapes = [value.shape for value in values]
        order = sorted({part.variable for part in parts})
        #: For every variable, its parts by their positions.
        self._groups = [
            [i for i, part in enumerate(parts) if part.variable == variable] for variable in order
        ]
        whole = dict(zip(order, values, strict=True))
        slices = [_slice(whole[part.variable], part) for part in parts]
        self._part_shapes = [each.shape for each in slices]
        tensors = [Tensor(each.size, part.server) for each, part in zip(slices, parts, strict=True)]
        self.buckets = fill_buckets(tensors, messages.group_size, messages.cut_size)
        self.variables: list[Any] = []
        self._slots: list[list[Any]] = []
        flats = pack(self.buckets, [tf.constant(each) for each in slices])
        for bucket, flat in zip(self.buckets, flats, strict=True):
            with tf.device(server_device(bucket.server)):
                self.variables.append(tf.Variable(flat))
                self._slots.append(
                    [
                        tf.Variable(tf.fill(shape, rule.first_slot_value))
                        for shape in rule.slots((bucket.size,))
                    ]
                )

    def ruled_by(self, rule: UpdateRule) -> ServedVariables:
        """The same buckets and slots, changed by another rule with such slots."""
        other = copy(self)
        other.rule = rule
        return other

    def assemble(self, flats: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        """Whole variables, in creation order, from one flat tensor per bucket."""
        parts = unpack(self.buckets, flats, self._part_shapes)
        return [
            parts[group[0]]
            if len(group) == 1
            else tf.concat([parts[i] for i in group], self._parts[group[0]].axis)
            for group in self._groups
        ]

    def pack(self, gradients: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        """One flat tensor per bucket, from whole gradients in creation order."""
        pieces: list[tf.Tensor] = [None] * len(self._parts)
        for group, gradient in zip(self._groups, gradients, strict=True):
            parts = [self._parts[i] for i in group]
            lengths = [part.length for part in parts]
            cut = [gradient] if len(group) == 1 else tf.split(gradient, lengths, parts[0].axis)
            for index, piece in zip(group, cut, strict=True):
                pieces[index] = piece
        return pack(self.buckets, pieces)

    def update(self, number: int, gradient: tf.Tensor) -> tf.Operation:
        """Apply a gradient to a bucket, on the bucket's server."""
        slots = [slot.handle for slot in self._slots[number]]
        return self.rule.apply(self.variables[number].handle, slots, gradient)

    def read(self) -> list[tf.Tensor]:
        """The present value of every bucket."""
        return [variable.read_value() for variable in self.variables]

    def read_whole(self) -> list[Array]:
        """Whole variables, fetched to the chief."""
        return [value.numpy() for value in self.assemble(self.read())]

    def read_slots(self) -> list[list[Array]]:
        """The slots of every whole variable; a number that a bucket keeps is all its variables'."""
        first = self._first_buckets()
        by_kind: list[list[Array]] = []
        for kind in range(self._kinds):
            flats = [slots[kind].read_value() for slots in self._slots]
            if flats[0].shape.rank:
                by_kind.append([whole.numpy() for whole in self.assemble(flats)])
            else:
                by_kind.append([flats[number].numpy() for number in first])
        return [[values[i] for values in by_kind] for i in range(len(first))]

    def restore(self, values: Sequence[Array], slots: Sequence[Sequence[Array]]) -> None:
        """Give variables and slots the values of whole variables that were read before."""
        first = self._first_buckets()
        whole = self.pack([tf.constant(value) for value in values])
        for variable, flat in zip(self.variables, whole, strict=True):
            variable.assign(flat)
        for kind in range(self._kinds):
            kept = [tf.constant(each[kind]) for each in slots]
            if self._slots[0][kind].shape.rank:
                flats = self.pack(kept)
            else:
                holding = [first.index(n) if n in first else 0 for n in range(len(self.buckets))]
                flats = [kept[i] for i in holding]
            for bucket, flat in zip(self._slots, flats, strict=True):
                bucket[kind].assign(flat)

    @property
    def _kinds(self) -> int:
        """Slots of each bucket."""
        return len(self._slots[0]) if self._slots else 0

    def _first_buckets(self) -> list[int]:
        """For every variable, the number of the bucket with its first element."""
        pieces = holders(self.buckets, len(self._parts))
        return [pieces[group[0]][0][0] for group in self._groups]


def _slice(value: Array, part: Part) -> Array:
    if part.axis is None:
        return value
    taken = np.take(value, range(part.start, part.start + part.length), axis=part.axis)
    return np.ascontiguousarray(taken)


#: Whole tables, or what an optimizer keeps of their rows.
Table = npt.NDArray[Any]


class ServedTables:
    """Rows on servers, and what workers and servers do with them.

    Attributes:
        stack: which rows are where.
        variables: of each server, its rows.
        rule: what changes them.
    """

    def __init__(self, stack: Stack, tables: Sequence[Table], rule: UpdateRule) -> None:
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

    def read_whole(self) -> list[Table]:
        """The tables, fetched to the chief."""
        return unstacked(self.stack, self._whole(self.variables))

    def read_slots(self) -> list[list[Table]]:
        """The slots of every table; a number that a server keeps once is all tables'."""
        kinds = zip(*self._slots, strict=True)
        kept = [self._whole(k) if k[0].shape.rank else k[0].numpy() for k in kinds]
        return unstacked_slots(self.stack, kept)

    def restore(self, tables: Sequence[Table], slots: Sequence[Sequence[Table]]) -> None:
        """Give tables and slots the values that were read before."""
        whole, kept = stacked(self.stack, tables), stacked_slots(self.stack, slots)
        for server in self._servers:
            self.variables[server].assign(self._of_server(whole, server))
            for slot, value in zip(self._slots[server], kept, strict=True):
                slot.assign(self._of_server(value, server) if value.ndim else value)

    def _of_server(self, whole: Table, server: int) -> Table:
        """A server's rows of all that the stack numbers."""
        return whole[server :: self.stack.num_servers][: self.stack.places_on(server)]

    def _whole(self, variables: Sequence[Any]) -> Table:
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
