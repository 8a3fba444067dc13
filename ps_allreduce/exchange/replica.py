"""The parameters that a worker keeps for itself, and how workers average their gradients.

Decides how such a worker makes variables and steps, alone or inside MultiWorkerMirroredStrategy.

Gradients are averaged in buckets or in TensorFlow's packs.  In packs, TensorFlow gives every
collective of a replica the same ordering token: a pack begins when the one before has ended, and
links are idle in between.  NCCL needs that order, RING does not.  In buckets, gradients go through
RING, several of them under way at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from .buckets import Messages, Tensor, fill_buckets
from .steps import hold, on_device, pack, traced_function, unpack
from .updates import UpdateRule
from .worker_local import LocalCounter

Array = npt.NDArray[Any]


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

    def from_first(self, values: Sequence[Array]) -> list[Array]:
        """What the first worker holds of some values."""
        return list(values)

    def means(self, values: Sequence[Array]) -> list[Array]:
        """The mean of all workers, of whole numbers that of the first worker."""
        return list(values)


class Mirrored:
    """A worker among others that keep the same; one device per worker process.

    TensorFlow reads the environment variable TF_CONFIG when it makes the strategy object
    (tensorflow/tensorflow#31154).
    """

    def __init__(self, options: Any = None) -> None:
        """Return once all workers are there; `options` say how TensorFlow packs, where it does."""
        self._strategy = tf.distribute.MultiWorkerMirroredStrategy(communication_options=options)
        self._gather = traced_function(self.place(_gather))

    def make_variable(self, value: Array) -> Any:
        """A variable on the worker's device."""
        with self._strategy.scope():
            return self._strategy.experimental_local_results(tf.Variable(value))[0]

    def place(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap a function of this worker as the strategy needs it."""
        return lambda *arguments: self._strategy.run(function, args=arguments)

    def largest(self, value: float) -> float:
        """The largest value of all workers."""
        return float(np.max(self._gather(tf.constant([value], tf.float64)).numpy()))

    def from_first(self, values: Sequence[Array]) -> list[Array]:
        """What the first worker holds of some values; all workers give values of these shapes."""
        is_first = self._strategy.cluster_resolver.task_id == 0
        given = [value if is_first else np.zeros_like(value) for value in values]
        return self._reduce(tf.distribute.ReduceOp.SUM, given)

    def means(self, values: Sequence[Array]) -> list[Array]:
        """The mean of all workers, of whole numbers that of the first worker."""
        means = self._reduce(tf.distribute.ReduceOp.MEAN, values)
        first = self.from_first(values)
        pairs = zip(means, first, strict=True)
        return [mean if mean.dtype.kind == "f" else one for mean, one in pairs]

    def _reduce(self, how: tf.distribute.ReduceOp, values: Sequence[Array]) -> list[Array]:
        """Collectives know few number formats: others travel as float64."""

        def reduce(tensors: list[tf.Tensor]) -> list[tf.Tensor]:
            context = tf.distribute.get_replica_context()
            # One by one: a list has to be of one number format.
            return [context.all_reduce(how, tf.identity(tensor)) for tensor in tensors]

        if not values:
            return []
        known = [np.asarray(v, None if v.dtype == np.float32 else np.float64) for v in values]
        reduced = traced_function(self.place(reduce))([tf.constant(value) for value in known])
        return [
            each.numpy().astype(value.dtype) for each, value in zip(reduced, values, strict=True)
        ]


def _gather(value: tf.Tensor) -> tf.Tensor:
    """The values of all workers, in a row; an argument is on no device, and its copy is."""
    return tf.distribute.get_replica_context().all_gather(tf.identity(value), axis=0)


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
            [
                make_variable(np.full(shape, rule.first_slot_value, np.float32))
                for shape in rule.slots(value.shape)
            ]
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

    def restore(self, values: Sequence[Array], slots: Sequence[Sequence[Array]]) -> None:
        """Give variables and slots the values that were read before."""
        for variable, value in zip(self.variables, values, strict=True):
            variable.assign(value)
        for variables, kept in zip(self.slots, slots, strict=True):
            for variable, value in zip(variables, kept, strict=True):
                variable.assign(value)


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
        self._steps = LocalCounter("steps_of_rings")
        self.prepare()

    def prepare(self) -> list[tf.Operation]:
        """What the worker needs before its first step; a chief has each of its workers do it."""
        return [self._steps.start()]

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
        turn = self._steps.count() % 2
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
