"""An accelerator that takes time but no processor.

Forward and backward pass are timers inside the graph (TensorFlow's `SleepDataset`); gradients have
the real sizes and become available in groups of equal time, in backward order.

Every batch notes when it began, and every tick of its timer waits until a moment counted from
there: a tick that comes late, because the processor was busy, does not delay the ones after it.
By how much ticks are late on an idle worker is measured when the worker is set up, and taken off.
Other work may make ticks later at that moment, and would make the accelerator too fast for the
whole run: the least of all delays counts, and no more than `MOST_LATENESS_S`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import tensorflow as tf
from tensorflow.python.data.experimental.ops import testing

from ps_allreduce.point.workload import EmulatedCompute, Workload
from ps_allreduce.workloads.data.inputs import batch_specs, make_dataset
from ps_allreduce.workloads.keras_models import build_network
from ps_allreduce.workloads.program import BatchOutputs, now_after
from ps_allreduce.workloads.worker_local import LocalIterator, LocalVariable, assign

TICK = (tf.TensorSpec([], tf.int64),)

#: When the present batch began, in seconds since the epoch, and by how many seconds ticks are late.
BEGIN = LocalVariable("accelerator/begin", tf.float64, ())
LATENESS = LocalVariable("accelerator/lateness", tf.float64, ())

#: Ticks of an idle worker are 0.2 to 0.6 ms late (measured on two cores, TensorFlow 2.21).
MOST_LATENESS_S = 0.001

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
            LocalIterator("accelerator", TICK),
        )

    def initial_values(self) -> list[npt.NDArray[np.float32]]:
        """Initial values of the trainable variables, equal for equal seeds."""
        return self._initial

    def initialise(self, worker: tf.Tensor) -> list[tf.Operation]:
        """Create gradients, input and a calibrated timer on the worker that executes this."""
        dataset = make_dataset(self._workload, self._num_workers, worker, self._data_dir)
        source, accelerator = self.iterators
        created = [
            assign(variable.handle(), tf.fill(variable.shape, GRADIENT_VALUE))
            for variable in self.state
        ]
        timer = accelerator.start(_timer(self._moments()))
        return [*created, source.start(dataset), timer, *_calibrate()]

    def _moments(self) -> list[float]:
        """Seconds from the beginning of a batch to the loss and to each group's release."""
        compute, groups = self._compute, len(self._groups)
        released = [compute.backward_s * (number + 1) / groups for number in range(groups)]
        return [compute.forward_s, *(compute.forward_s + moment for moment in released)]

    def batch(
        self,
        values: Sequence[tf.Tensor],
        state: Sequence[tf.Tensor],
        iterators: Sequence[tf.Tensor],
    ) -> BatchOutputs:
        """Wait the forward time, then release the gradients group by group."""
        source, accelerator = self.iterators
        images, _ = source.next(iterators[0])
        input_ready = now_after([images])
        tick = _begin([*values, images])
        with tf.control_dependencies([tick]):
            (tick,) = accelerator.next(iterators[1])
        loss_ready = now_after([tick])
        gradients: list[tf.Tensor] = [None] * len(state)
        releases = []
        for group in self._groups:
            with tf.control_dependencies([tick]):
                (tick,) = accelerator.next(iterators[1])
            releases.append(now_after([tick]))
            with tf.control_dependencies([tick]):
                for index in group:
                    gradients[index] = tf.identity(state[index])
        return BatchOutputs(
            loss=tf.constant(1.0),
            gradients=gradients,
            state=list(state),
            moments=[input_ready, loss_ready, now_after(gradients)],
            releases=releases,
        )


def _begin(things: Sequence[tf.Tensor]) -> tf.Operation:
    """Note that a batch begins, once all things are there."""
    return assign(BEGIN.handle(), now_after(things))


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


def _timer(moments: Sequence[float]) -> tf.data.Dataset:
    """Ticks at the moments of one batch after the other; nothing prefetches them."""

    @tf.autograph.experimental.do_not_convert
    def tick(number: tf.Tensor) -> tf.data.Dataset:
        due = BEGIN.read(BEGIN.handle()) + tf.gather(
            tf.constant(moments, tf.float64), number % len(moments)
        )
        left_s = due - LATENESS.read(LATENESS.handle()) - tf.timestamp()
        left_us = tf.cast(tf.maximum(left_s * 1e6, 0.0), tf.int64)
        # Asked for a second element, it would sleep again before it finds that there is none.
        return tf.data.Dataset.from_tensors(number).apply(testing.sleep(left_us)).take(1)

    options = tf.data.Options()
    options.experimental_optimization.apply_default_optimizations = False
    options.autotune.enabled = False
    return tf.data.Dataset.range(1 << 40).flat_map(tick).with_options(options)


def _calibrate(spacing_s: float = 0.005, count: int = 20) -> list[tf.Operation]:
    """Measure by how much ticks are late on the executing worker, and have it taken off."""
    moments = [spacing_s * (number + 1) for number in range(count)]
    iterator = LocalIterator("accelerator/calibration", TICK)
    handle = iterator.handle()
    ready = assign(LATENESS.handle(), tf.constant(0.0, tf.float64))
    with tf.control_dependencies([ready]):
        started = iterator.start(_timer(moments))
    tick = _begin([started])
    late = []
    for moment in moments:
        with tf.control_dependencies([tick]):
            (tick,) = iterator.next(handle)
        with tf.control_dependencies([tick]):
            begin = BEGIN.read(BEGIN.handle())
        late.append(now_after([tick]) - begin - moment)
    return [assign(LATENESS.handle(), tf.minimum(tf.reduce_min(late), MOST_LATENESS_S))]
