"""What both parameter-server strategies share: the cluster, the variables and their placement.

The chief creates every bucket on the server that the plan names, with its slots beside it.  It
traces one step that any worker can execute (decision 0002).
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, wait
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from ps_allreduce.backends.buckets import Tensor, fill_buckets, holders
from ps_allreduce.backends.devices import on_device
from ps_allreduce.backends.packing import hold, pack, unpack
from ps_allreduce.backends.parameter_servers.listening import wait_for_servers
from ps_allreduce.backends.protocol import Backend, Rows, Task
from ps_allreduce.backends.updates import UpdateRule, update_rule
from ps_allreduce.backends.worker_step import (
    Exchanged,
    checksum,
    initialise_worker,
    traced_function,
)
from ps_allreduce.point.placement import DEFAULT_SPLIT_BYTES, Held, Plan, Shard, make_plan
from ps_allreduce.point.strategies.servers import ParameterServers
from ps_allreduce.point.wire import Wire
from ps_allreduce.tf_internals.private_api import memory_device
from ps_allreduce.workloads.inputs import WorkerIndex
from ps_allreduce.workloads.program import Program
from ps_allreduce.workloads.worker_local import LocalVariable, assign

ROWS_PER_FETCH = 500


class ServedVariables:
    """The trainable variables on the servers, one TensorFlow variable per bucket."""

    def __init__(
        self,
        plan: Plan,
        wire: Wire,
        rule: UpdateRule,
        values: Sequence[npt.NDArray[np.float32]],
    ) -> None:
        """Create buckets and slots; `values` are whole variables in creation order."""
        self.plan, self._rule = plan, rule
        order = sorted({shard.variable for shard in plan.shards})
        self._groups = [
            [i for i, shard in enumerate(plan.shards) if shard.variable == variable]
            for variable in order
        ]
        whole = dict(zip(order, values, strict=True))
        parts = [_slice(whole[shard.variable], shard) for shard in plan.shards]
        self._shapes = [part.shape for part in parts]
        tensors = [
            Tensor(p.size, shard.server) for p, shard in zip(parts, plan.shards, strict=True)
        ]
        self.buckets = fill_buckets(tensors, wire.group_size, wire.cut_size)
        self.variables: list[Any] = []
        self._slots: list[list[Any]] = []
        flats = pack(self.buckets, [tf.constant(part) for part in parts])
        for bucket, flat in zip(self.buckets, flats, strict=True):
            with tf.device(server_device(bucket.server)):
                self.variables.append(tf.Variable(flat))
                self._slots.append([tf.Variable(tf.zeros(s)) for s in rule.slots((bucket.size,))])

    def assemble(self, flats: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        """Whole variables, in creation order, from one flat tensor per bucket."""
        parts = unpack(self.buckets, flats, self._shapes)
        return [
            parts[group[0]]
            if len(group) == 1
            else tf.concat([parts[i] for i in group], self.plan.shards[group[0]].axis)
            for group in self._groups
        ]

    def pack(self, gradients: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        """One flat tensor per bucket, from whole gradients in creation order."""
        parts: list[tf.Tensor] = [None] * len(self.plan.shards)
        for group, gradient in zip(self._groups, gradients, strict=True):
            shards = [self.plan.shards[i] for i in group]
            lengths = [shard.length for shard in shards]
            pieces = [gradient] if len(group) == 1 else tf.split(gradient, lengths, shards[0].axis)
            for index, piece in zip(group, pieces, strict=True):
                parts[index] = piece
        return pack(self.buckets, parts)

    def update(self, number: int, gradient: tf.Tensor) -> tf.Operation:
        """Apply a gradient to a bucket, on the bucket's server."""
        slots = [slot.handle for slot in self._slots[number]]
        return self._rule.apply(self.variables[number].handle, slots, gradient)

    def read(self) -> list[tf.Tensor]:
        """The present value of every bucket."""
        return [variable.read_value() for variable in self.variables]

    def held(self) -> Held:
        """For every shard of the plan, its bytes by device, as TensorFlow reports the devices."""
        held: dict[int, Counter[str]] = {}
        for shard, pieces in enumerate(holders(self.buckets, len(self.plan.shards))):
            held[shard] = Counter()
            for number, inside in pieces:
                variable, piece = self.variables[number], self.buckets[number].pieces[inside]
                held[shard][variable.device] += piece.size * variable.dtype.size
        return held


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


def _slice(value: npt.NDArray[np.float32], shard: Shard) -> npt.NDArray[np.float32]:
    if shard.axis is None:
        return value
    taken = np.take(value, range(shard.start, shard.start + shard.length), axis=shard.axis)
    return np.ascontiguousarray(taken)


def server_device(server: int) -> str:
    """Device of a parameter server."""
    return f"/job:ps/replica:0/task:{server}/device:CPU:0"


def worker_device(worker: int) -> str:
    """The processors of a worker: its functions begin there, even if they compute on a GPU."""
    return f"/job:worker/replica:0/task:{worker}/device:CPU:0"


class ServerBackend(Backend):
    """The chief of a cluster with parameter servers."""

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        strategy = task.experiment.strategy
        assert isinstance(strategy, ParameterServers)
        assert task.tf_config is not None
        self._servers, self._wire = strategy.servers, strategy.wire
        self._tf_config = task.tf_config

    def connect(self) -> None:
        """Wait until all tasks listen, then connect to them."""
        wait_for_servers(self._tf_config.cluster)
        os.environ["TF_CONFIG"] = self._tf_config.render()
        resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
        self._strategy = tf.distribute.ParameterServerStrategy(resolver)
        self._coordinator = tf.distribute.coordinator.ClusterCoordinator(self._strategy)

    def build(self, program: Program) -> None:
        """Place the variables and create every worker's own resources."""
        servers = self._servers
        split_bytes = servers.split_bytes or DEFAULT_SPLIT_BYTES
        plan = make_plan(servers.placement, program.variables, servers.num_ps, split_bytes)
        self._program = program
        values = program.initial_values()
        rule = update_rule(self._experiment.workload.optimizer)
        self._served = ServedVariables(plan, self._wire, rule, values)
        self._values = [
            LocalVariable(f"value/{i}", tf.float32, value.shape) for i, value in enumerate(values)
        ]
        self._initialiser = traced_function(self._on_device(self._initialise))
        for worker in range(self._experiment.num_workers):
            self._initialise_on(worker)

    def _initialise_on(self, worker: int) -> None:
        """Traced outside of any device scope, and once for all workers if the program lets us."""
        if self._program.wants_integers:
            function = self._initialiser.get_concrete_function(worker)
            arguments = []
        else:
            function = self._initialiser.get_concrete_function(tf.TensorSpec([], tf.int32))
            arguments = [tf.constant(worker)]
        with tf.device(worker_device(worker)):
            function(*arguments)

    def _initialise(self, worker: WorkerIndex) -> tf.Tensor:
        """Create a worker's own resources, and bring it the initial values of the parameters."""
        ready = initialise_worker(self._program, worker)
        with tf.control_dependencies(self._store(self._served.read())):
            return tf.identity(ready)

    def _store(self, flats: Sequence[tf.Tensor]) -> list[tf.Operation]:
        """Store values of all buckets on the worker that executes this."""
        whole = self._served.assemble([tf.identity(flat) for flat in flats])
        return [assign(v.handle(), value) for v, value in zip(self._values, whole, strict=True)]

    def values(self) -> list[tf.Tensor]:
        """What the worker holds: the values that its last exchange has brought."""
        return [variable.read(variable.handle()) for variable in self._values]

    def _on_device(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """A function of a worker, on the device that workers compute on."""
        return on_device(self._experiment.resources.device, function)

    def fetch(self, made: Sequence[tf.Tensor]) -> Rows:
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

    def weight_checksums(self) -> list[int]:
        """One exact sum per bucket, computed on its server."""
        sums = []
        for variable in self._served.variables:
            with tf.device(variable.device):
                sums.append(int(checksum(variable.read_value())))
        return sums

    def read_weights(self) -> list[npt.NDArray[np.float32]]:
        """Whole variables, fetched to the chief."""
        return [value.numpy() for value in self._served.assemble(self._served.read())]

    def placement(self) -> tuple[Plan, Held] | None:
        """The plan, and what devices hold of it."""
        return self._served.plan, self._served.held()

    def num_messages(self) -> int:
        """One message per bucket and direction."""
        return len(self._served.buckets)

    def _exchange(self, gradients: Sequence[tf.Tensor], send: Send) -> Exchanged:
        """Hand the gradients' buckets to `send`, and store what it brings back."""
        units = self._served.pack(gradients)
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
        wire = self._wire
        back: dict[int, list[tf.Tensor]] = {}
        pushed, arrived = [], []
        for number, (bucket, unit) in enumerate(zip(self._served.buckets, units, strict=True)):
            earlier = back.setdefault(bucket.server, [])
            sent = hold(tf.cast(unit, wire.gradients), earlier, wire.in_flight)
            with tf.device(server_device(bucket.server)):
                done, readable = update(number, tf.cast(sent, tf.float32))
                with tf.control_dependencies([readable]):
                    value = self._served.variables[number].read_value()
            pushed.append(done)
            arrived.append(tf.identity(value))
            earlier.append(arrived[-1])
        return Sent(pushed=pushed, arrived=arrived)


def raise_first(futures: list[Future[list[tf.Tensor]]]) -> None:
    """Wait for all; raise at once if one fails, because the others may wait for it forever."""
    done, _ = wait(futures, return_when=FIRST_EXCEPTION)
    for future in done:
        if error := future.exception():
            raise error
