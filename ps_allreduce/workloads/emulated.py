"""An accelerator that takes time but no processor.

Forward and backward pass are timers inside the graph (TensorFlow's `SleepDataset`); gradients have
the real sizes and become available in groups of equal time, in backward order.  A timer of t
seconds takes a little longer than t; `calibrate` measures by how much on the worker itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import tensorflow as tf
from tensorflow.python.data.experimental.ops import testing

from ps_allreduce.experiment import EmulatedCompute, Workload
from ps_allreduce.workloads.inputs import batch_specs, make_dataset
from ps_allreduce.workloads.networks import build_network
from ps_allreduce.workloads.program import BatchOutputs, now_after
from ps_allreduce.workloads.worker_local import LocalIterator, LocalVariable, assign

TICK = (tf.TensorSpec([], tf.int64),)

#: The gradients' value: small enough that no number of steps overflows, large enough to move
#: weights.
GRADIENT_VALUE = 1e-6


class EmulatedProgram:
    """Takes the stated time per batch and yields constant gradients of a network's sizes."""

    def __init__(self, workload: Workload, num_workers: int, data_dir: Path) -> None:
        if workload.emulated is None:
            raise ValueError("the workload states no emulated compute")
        self._workload = workload
        self._compute: EmulatedCompute = workload.emulated
        self._num_workers = num_workers
        self._data_dir = data_dir
        network = build_network(workload)
        self._initial = network.initial_values()
        self.variables = network.variables
        trainable = [spec for spec in network.variables if spec.trainable]
        self._groups = backward_groups([s.num_bytes for s in trainable], self._compute.groups)
        self.state = tuple(
            LocalVariable(f"gradient/{index}", tf.as_dtype(spec.dtype), spec.shape)
            for index, spec in enumerate(trainable)
        )
        self.iterators = (
            LocalIterator("input", batch_specs(workload)),
            LocalIterator("forward", TICK),
            LocalIterator("backward", TICK),
        )

    def initial_values(self) -> list[npt.NDArray[np.float32]]:
        """Initial values of the trainable variables, equal for equal seeds."""
        return self._initial

    def initialise(self, worker: tf.Tensor) -> list[tf.Operation]:
        """Create gradients, input and calibrated timers on the worker that executes this."""
        dataset = make_dataset(self._workload, self._num_workers, worker, self._data_dir)
        _, forward, backward = self.iterators
        group_s = self._compute.backward_s / len(self._groups)
        created = [
            assign(variable.handle(), tf.fill(variable.shape, GRADIENT_VALUE))
            for variable in self.state
        ]
        return [
            *created,
            self.iterators[0].start(dataset),
            forward.start(_timer(calibrate(self._compute.forward_s, "forward"))),
            backward.start(_timer(calibrate(group_s, "backward"))),
        ]

    def batch(
        self,
        values: Sequence[tf.Tensor],
        state: Sequence[tf.Tensor],
        iterators: Sequence[tf.Tensor],
    ) -> BatchOutputs:
        """Wait the forward time, then release the gradients group by group."""
        _, forward, backward = self.iterators
        images, _ = self.iterators[0].next(iterators[0])
        input_ready = now_after([images])
        with tf.control_dependencies([*values, images]):
            (tick,) = forward.next(iterators[1])
        loss_ready = now_after([tick])
        gradients: list[tf.Tensor] = [None] * len(state)
        releases = []
        for group in self._groups:
            with tf.control_dependencies([tick]):
                (tick,) = backward.next(iterators[2])
            releases.append(now_after([tick]))
            with tf.control_dependencies([tick]):
                for index in group:
                    gradients[index] = tf.identity(state[index])
        return BatchOutputs(
            loss=tf.constant(1.0),
            gradients=gradients,
            state=list(state),
            moments=tf.stack([input_ready, loss_ready, now_after(gradients)]),
            releases=tf.stack(releases),
        )


def backward_groups(sizes: Sequence[int], count: int) -> list[list[int]]:
    """Split positions, last first, into at most `count` groups of about equal bytes."""
    target = sum(sizes) / count
    groups: list[list[int]] = [[]]
    filled = 0
    for index in reversed(range(len(sizes))):
        if groups[-1] and filled + sizes[index] / 2 > len(groups) * target:
            groups.append([])
        groups[-1].append(index)
        filled += sizes[index]
    return groups


def _timer(duration_us: tf.Tensor) -> tf.data.Dataset:
    """A dataset each of whose elements takes so long; nothing prefetches it."""
    options = tf.data.Options()
    options.experimental_optimization.apply_default_optimizations = False
    options.autotune.enabled = False
    ticks = tf.data.Dataset.range(1 << 40).apply(testing.sleep(duration_us))
    return ticks.with_options(options)


def calibrate(wanted_s: float, name: str, rounds: int = 3, ticks: int = 8) -> tf.Tensor:
    """The timer setting, int64 microseconds, with which a tick really takes `wanted_s`.

    Measures `ticks` ticks on the executing worker and corrects the setting by the difference,
    `rounds` times.
    """
    setting = tf.constant(round(wanted_s * 1e6), tf.int64)
    before: list[tf.Operation] = []
    for number in range(rounds):
        iterator = LocalIterator(f"calibrate/{name}/{number}", TICK)
        with tf.control_dependencies(before):
            handle = iterator.handle()
            started = iterator.start(_timer(setting))
        with tf.control_dependencies([started]):
            (tick,) = iterator.next(handle)
        begin = now_after([tick])
        for _ in range(ticks):
            with tf.control_dependencies([tick]):
                (tick,) = iterator.next(handle)
        taken_s = (now_after([tick]) - begin) / ticks
        correction = tf.cast(tf.round((wanted_s - taken_s) * 1e6), tf.int64)
        setting = tf.maximum(setting + correction, 1)
        before = [tick.op]
    return setting
