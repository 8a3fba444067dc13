"""Parameter servers, asynchronous and synchronous: the cluster, and where variables go.

The chief has every bucket created on the server that the plan names (`exchange.served`).  It traces
one step that any worker can execute (decision 0002).  Of a hybrid, it drives workers that average
all else among themselves as well.
"""

from __future__ import annotations

import os
from abc import abstractmethod
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from ps_allreduce.backends.contract import (
    COMPUTE,
    ProgramBackend,
    Rows,
    Task,
    recorded_buckets,
    scheduled_rule,
)
from ps_allreduce.backends.worker_step import (
    checksum,
    initialise_worker,
    trace_evaluation,
    trace_step,
)
from ps_allreduce.errors import LaunchError
from ps_allreduce.exchange.aggregation import join_cluster, workers_by_host
from ps_allreduce.exchange.asynchronous import AsynchronousExchange
from ps_allreduce.exchange.buckets import Messages, holders
from ps_allreduce.exchange.hybrid_exchange import HybridExchange
from ps_allreduce.exchange.listening import wait_for_servers
from ps_allreduce.exchange.served import ServedTables, ServedVariables
from ps_allreduce.exchange.servers import ServerExchange, connect, fetch, raise_first
from ps_allreduce.exchange.steps import Exchange, Values, traced_function, worker_device
from ps_allreduce.exchange.switching import SwitchingExchange
from ps_allreduce.exchange.synchronous import SynchronousExchange
from ps_allreduce.exchange.updates import UpdateRule
from ps_allreduce.point.placement import Held, Plan
from ps_allreduce.point.strategies import AsynchronousServers, Hybrid
from ps_allreduce.point.strategies.with_servers import ParameterServers
from ps_allreduce.point.wire import ELEMENT_BYTES
from ps_allreduce.record.variables import MessageRecord, TableUsed
from ps_allreduce.workloads.inputs import WorkerIndex
from ps_allreduce.workloads.program import Program


class ServerBackend(ProgramBackend):
    """The chief of a cluster with parameter servers."""

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        strategy = task.experiment.strategy
        assert isinstance(strategy, ParameterServers | Hybrid)
        assert task.tf_config is not None
        self._servers, self._wire = strategy.servers, strategy.wire
        self._tf_config = task.tf_config
        self._device = COMPUTE[task.experiment.resources.device]
        self._traced: dict[tuple[bool, bool], Any] = {}

    def connect(self) -> None:
        """Wait until all tasks listen, then connect to them."""
        self._wait_for_servers()
        os.environ["TF_CONFIG"] = self._tf_config.render()
        self._coordinator = connect()

    def _wait_for_servers(self) -> None:
        try:
            wait_for_servers(self._tf_config.cluster.as_dict())
        except TimeoutError as error:
            raise LaunchError(str(error)) from error

    @abstractmethod
    def _make_exchange(self, program: Program, rule: UpdateRule) -> ServerExchange:
        """Create the variables, and say what the chief makes workers and servers do."""

    def build(self, program: Program) -> None:
        """Create variables and every worker's own resources."""
        self._program = program
        synchronous = self._experiment.strategy.synchronous
        rule = scheduled_rule(self._experiment, averaged=synchronous)
        self._tables = self._make_tables(program, rule)
        self._exchange = self._make_exchange(program, rule)
        self._initialiser = traced_function(self._exchange.on_device(self._initialise))
        self._evaluator = traced_function(
            self._exchange.on_device(
                lambda count: trace_evaluation(program, self._exchange.newest, count)
            )
        )
        for worker in range(self._experiment.num_workers):
            self._initialise_on(worker)

    def _make_tables(self, program: Program, rule: UpdateRule) -> ServedTables | None:
        """Place the rows of tables that are looked up in."""
        stack = self._servers.stack(program.variables)
        if stack is None:
            return None
        tables = ServedTables(stack, program.table_values(), rule)
        program.look_up_in(stack, tables.fetch)
        return tables

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
        with tf.control_dependencies(self._exchange.prepare()):
            return tf.identity(ready)

    def make(
        self, num_steps: int, *, events: bool = False, recorded: bool = True
    ) -> list[tf.Tensor]:
        """Have workers x steps made; all is traced before the first step."""

        def step(values: Values, exchange: Exchange) -> tf.Tensor:
            self.traces += 1
            return trace_step(self._program, values, exchange, events=events, recorded=recorded)

        if (events, recorded) not in self._traced:
            self._traced[events, recorded] = self._exchange.trace(step)
        return self._exchange.make(self._traced[events, recorded], num_steps)

    def evaluate_batches(self, shares: Sequence[int]) -> Rows:
        """Have every worker fetch the present parameters, and evaluate its share with them."""
        evaluate = self._evaluator.get_concrete_function(tf.TensorSpec([], tf.int32))

        def on_worker(worker: int) -> list[tf.Tensor]:
            with tf.device(worker_device(worker)):
                return [evaluate(tf.constant(shares[worker]))]

        taking = [worker for worker, share in enumerate(shares) if share]
        with ThreadPoolExecutor(len(taking)) as pool:
            futures = [pool.submit(on_worker, worker) for worker in taking]
            raise_first(futures)
        return np.concatenate([rows.numpy() for future in futures for rows in future.result()])

    def fetch(self, made: Sequence[tf.Tensor]) -> Rows:
        """Bring rows, or matrices of them, from their workers to the chief."""
        return fetch(made)

    def weight_checksums(self) -> list[int]:
        """One exact sum per variable on servers, computed there."""
        sums = []
        for variable in self._on_servers():
            with tf.device(variable.device):
                sums.append(int(checksum(variable.read_value())))
        return sums

    def _on_servers(self) -> list[Any]:
        """The variables that servers hold."""
        return [] if self._tables is None else self._tables.variables

    def _read_tables(self) -> list[npt.NDArray[np.float32]]:
        """Tables of which rows are looked up, whole."""
        return [] if self._tables is None else self._tables.read_whole()


class PlacedVariables(ServerBackend):
    """All variables are on servers; a plan says which is where."""

    def _make_exchange(self, program: Program, rule: UpdateRule) -> ServerExchange:
        messages = self._wire.messages
        self._plan = self._servers.plan(program.variables)
        values = program.initial_values()
        self._served = ServedVariables(self._plan.shards, messages, rule, values)
        return self._exchange_with(self._served, messages)

    @abstractmethod
    def _exchange_with(self, served: ServedVariables, messages: Messages) -> ServerExchange:
        """What the chief makes workers and servers do."""

    def _on_servers(self) -> list[Any]:
        return [*self._served.variables, *super()._on_servers()]

    def read_weights(self) -> list[npt.NDArray[np.float32]]:
        """Whole variables, fetched to the chief."""
        return self._in_order(self._served.read_whole(), self._read_tables())

    def placement(self) -> tuple[Plan, Held] | None:
        """The plan, and what devices hold of it."""
        return self._plan, held_of(self._served, len(self._plan.shards))

    def tables(self) -> tuple[list[TableUsed], list[str]]:
        """The plan for tables that are exchanged by rows, and the device of each server's rows."""
        if self._tables is None:
            return [], []
        indices = [index for index, spec in enumerate(self.variables) if spec.is_table]
        row_bytes = self._tables.width * ELEMENT_BYTES
        planned = [
            TableUsed(
                variable=index,
                row_bytes=row_bytes,
                rows_per_server=tuple(self._tables.stack.rows_of(table)),
            )
            for table, index in enumerate(indices)
        ]
        return planned, [str(variable.device) for variable in self._tables.variables]

    def messages(self) -> list[MessageRecord]:
        """One message per bucket and direction."""
        names = [self.variables[shard.variable].name for shard in self._plan.shards]
        recorded = recorded_buckets(self._served.buckets, names)
        return [
            replace(message, server=bucket.server)
            for message, bucket in zip(recorded, self._served.buckets, strict=True)
        ]


def held_of(served: ServedVariables, num_parts: int) -> Held:
    """For every part, its bytes by device, as TensorFlow reports the devices."""
    held: dict[int, Counter[str]] = {}
    for part, pieces in enumerate(holders(served.buckets, num_parts)):
        held[part] = Counter()
        for number, inside in pieces:
            variable, piece = served.variables[number], served.buckets[number].pieces[inside]
            held[part][variable.device] += piece.size * variable.dtype.size
    return held


class AsynchronousBackend(PlacedVariables):
    """Each worker computes and applies without waiting for the others."""

    def _exchange_with(self, served: ServedVariables, messages: Messages) -> ServerExchange:
        strategy = self._experiment.strategy
        assert isinstance(strategy, AsynchronousServers)
        common = served, messages, self._experiment.num_workers
        exchange = AsynchronousExchange(
            *common,
            self._device,
            self._coordinator,
            strategy.staleness,
            strategy.steps_per_dispatch,
            self._tables,
        )
        if not strategy.synchronous_steps:
            return exchange
        averaged = scheduled_rule(self._experiment, averaged=True)
        at_first = SynchronousExchange(
            served.ruled_by(averaged),
            messages,
            self._experiment.num_workers,
            strategy.num_ps,
            self._device,
            tables=self._tables and self._tables.ruled_by(averaged),
        )
        steps = strategy.synchronous_steps
        return SwitchingExchange(*common, self._device, at_first, exchange, steps)


class SynchronousBackend(PlacedVariables):
    """Every update is the mean over all workers' gradients."""

    def connect(self) -> None:
        """Wait until all tasks listen, then connect to them."""
        if not self._experiment.strategy.host_aggregation:
            super().connect()
            return
        self._wait_for_servers()
        join_cluster(self._tf_config.cluster.as_dict())

    def _exchange_with(self, served: ServedVariables, messages: Messages) -> SynchronousExchange:
        aggregates = self._experiment.strategy.host_aggregation
        hosts = workers_by_host(self._tf_config.cluster.as_dict()) if aggregates else ()
        return SynchronousExchange(
            served,
            messages,
            self._experiment.num_workers,
            self._servers.num_ps,
            self._device,
            hosts,
            self._tables,
        )


class HybridBackend(ServerBackend):
    """The chief of servers that hold tables, and of workers that hold the rest."""

    def _make_exchange(self, program: Program, rule: UpdateRule) -> HybridExchange:
        assert self._tables is not None
        self._hybrid = HybridExchange(
            program.initial_values(),
            rule,
            self._wire.messages,
            self._experiment.num_workers,
            self._servers.num_ps,
            self._device,
            self._tables,
        )
        return self._hybrid

    def weight_checksums(self) -> list[int]:
        """Those of servers, then one of each variable of a worker, which all must agree on."""
        own = [
            [int(checksum(value)) for value in self._hybrid.read_own(worker)]
            for worker in range(self._experiment.num_workers)
        ]
        if any(sums != own[0] for sums in own):
            raise LaunchError("workers hold different values of variables that they average.")
        return [*super().weight_checksums(), *own[0]]

    def read_weights(self) -> list[npt.NDArray[np.float32]]:
        """The first worker's variables, and whole tables."""
        own = [value.numpy() for value in self._hybrid.read_own(0)]
        return self._in_order(own, self._read_tables())

    def messages(self) -> list[MessageRecord]:
        """Those of the ring, one per bucket."""
        names = [spec.name for spec in self._whole if spec.trainable]
        return recorded_buckets(self._hybrid.buckets, names)
