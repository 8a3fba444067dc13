"""An accelerator that takes time but no processor.

Forward and backward pass are timers inside the graph (TensorFlow's `SleepDataset`).  Gradients have
the real sizes and become available in groups of equal time, in backward order: in as many as were
asked for and the time bears.

Every batch notes when it began, and every tick of its timer waits for a moment counted from there.
So a tick that comes late, because the processor was busy, does not delay the ticks after it.

All of these moments are multiplied by a worker's factor, and by that of a step where steps differ.

Ticks are a little late even on an idle worker.  This is measured when the worker is set up, and
taken off.  Other work at that moment would make the measured delay too long, and the accelerator
too fast for the whole run: so the least of all delays counts, and at most `MOST_LATENESS_S`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path

import tensorflow as tf

from ps_allreduce.exchange.batches import BatchOutputs
from ps_allreduce.exchange.worker_local import HOST, LocalIterator, LocalVariable, assign
from ps_allreduce.point.accelerators import CHOOSING_SHIFT, GOLDEN, ROUNDS, Jitter
from ps_allreduce.point.measurement import Evaluation
from ps_allreduce.point.workload import EmulatedCompute, Workload
from ps_allreduce.workloads.inputs import WorkerIndex
from ps_allreduce.workloads.program import EvaluatedBatch, Program, now_after

#: A tick carries the moment at which it was due.
TICK = (tf.TensorSpec([], tf.float64),)

#: When the present batch began, in seconds since the epoch, and how late ticks are, in seconds.
BEGIN = LocalVariable("accelerator/begin", tf.float64, ())
LATENESS = LocalVariable("accelerator/lateness", tf.float64, ())

#: Ticks of an idle worker are 0.2 to 0.6 ms late (measured on two cores, TensorFlow 2.21).
MOST_LATENESS_S = 0.001

#: The gradients' value: so small that no number of steps overflows, large enough to move weights.
GRADIENT_VALUE = 1e-6


class EmulatedProgram(Program):
    """Takes the stated time per batch and yields constant gradients of a model's sizes."""

    def __init__(
        self,
        workload: Workload,
        num_workers: int,
        data_dir: Path,
        evaluation: Evaluation | None = None,
    ) -> None:
        if workload.emulated is None:
            raise ValueError("the workload states no emulated compute")
        super().__init__(workload, num_workers, data_dir, evaluation)
        self._compute: EmulatedCompute = workload.emulated
        trainable = [spec for spec in self.variables if spec.trainable]
        self._groups = backward_groups([s.num_bytes for s in trainable], self._compute.releases)
        self.state = tuple(
            LocalVariable(f"gradient/{index}", tf.as_dtype(spec.dtype), spec.shape)
            for index, spec in enumerate(trainable)
        )
        self.iterators += (LocalIterator("accelerator", TICK),)
        self.evaluation_iterators += (LocalIterator("evaluation/accelerator", TICK),)

    def _create_state(self) -> list[tf.Operation]:
        return [
            assign(variable.handle(), tf.fill(variable.shape, GRADIENT_VALUE))
            for variable in self.state
        ]

    def initialise(self, worker: WorkerIndex) -> list[tf.Operation]:
        """Also create a calibrated timer."""
        created = super().initialise(worker)
        # Those of a step: of its batches, one after the other.
        moments = tf.tile(self._moments(worker), [self.accumulation])
        steps = tf.data.Dataset.from_tensors(moments).repeat()
        if self._compute.jitter is not None:
            draw = draws(self._compute.jitter, self._num_workers, worker)
            # A step draws while it waits for its first moment: that costs it no time.
            steps = tf.data.Dataset.range(1 << 40).map(lambda step: moments * draw(step))
        return [*created, self.iterators[1].start(_timer(steps.unbatch())), *_calibrate()]

    def _initialise_evaluation(
        self, worker: WorkerIndex, evaluation: Evaluation
    ) -> list[tf.Operation]:
        """Also create a timer of forward passes."""
        created = super()._initialise_evaluation(worker, evaluation)
        forward = tf.data.Dataset.from_tensors(self._moments(worker)[0]).repeat()
        return [*created, self.evaluation_iterators[1].start(_timer(forward))]

    @staticmethod
    def fetch(values: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        """Values that live elsewhere, on the worker that executes this.

        The operations of a model would need them there.  TensorFlow sends nothing of what is only
        waited for.
        """
        fetched = []
        with tf.device(HOST):
            for number, value in enumerate(values):
                variable = LocalVariable(f"fetched/{number}", value.dtype, tuple(value.shape))
                handle = variable.handle()
                assign(handle, value)
                fetched.append(variable.read(handle))
        return fetched

    def _moments(self, worker: WorkerIndex) -> tf.Tensor:
        """Seconds from the beginning of a worker's batch to the loss and to each release."""
        compute, groups = self._compute, len(self._groups)
        released = [compute.backward_s * (number + 1) / groups for number in range(groups)]
        stated = [compute.forward_s, *(compute.forward_s + moment for moment in released)]
        factors = tf.constant(compute.factors_of(self._num_workers), tf.float64)
        return tf.gather(factors, worker) * tf.constant(stated, tf.float64)

    def batch(
        self,
        values: Sequence[tf.Tensor],
        state: Sequence[tf.Tensor],
        iterators: Sequence[tf.Tensor],
    ) -> BatchOutputs:
        """Wait the forward time, then release the gradients group by group."""
        source, accelerator = self.iterators
        examples = source.next(iterators[0])
        input_ready = now_after(examples)
        tick = _begin([*values, *examples])
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

    def evaluate(
        self,
        values: Sequence[tf.Tensor],
        state: Sequence[tf.Tensor],
        iterators: Sequence[tf.Tensor],
    ) -> EvaluatedBatch:
        """Wait the forward time; nothing is learned."""
        source, accelerator = self.evaluation_iterators
        examples = source.next(iterators[0])
        input_ready = now_after([*values, *examples])
        with tf.control_dependencies([_begin([*values, *examples])]):
            (tick,) = accelerator.next(iterators[1])
        with tf.control_dependencies([tick]):
            loss = tf.constant(1.0)
        unknown = tf.constant(math.nan)
        return EvaluatedBatch(
            loss=loss, accuracy=unknown, gradient_norm=unknown, input_ready=input_ready
        )


def draws(
    jitter: Jitter, num_workers: int, worker: WorkerIndex
) -> Callable[[tf.Tensor], tf.Tensor]:
    """What tells the factor of a worker's step, by its number: that of `Jitter.factors`."""
    stream = tf.gather(tf.constant(jitter.streams(num_workers)), worker)
    quantiles = tf.constant(jitter.quantiles)

    def draw(step: tf.Tensor) -> tf.Tensor:
        state = stream + tf.cast(step + 1, tf.uint64) * tf.constant(GOLDEN, tf.uint64)
        for shift, factor in ROUNDS:
            shifted = tf.bitwise.right_shift(state, tf.constant(shift, tf.uint64))
            state = tf.bitwise.bitwise_xor(state, shifted) * tf.constant(factor, tf.uint64)
        choice = tf.bitwise.right_shift(state, tf.constant(CHOOSING_SHIFT, tf.uint64))
        return tf.gather(quantiles, tf.cast(choice, tf.int64))

    return draw


def _begin(tensors: Sequence[tf.Tensor]) -> tf.Operation:
    """Note that a batch begins, once all tensors are there."""
    return assign(BEGIN.handle(), now_after(tensors))


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


def _timer(moments: tf.data.Dataset) -> tf.data.Dataset:
    """A tick at each of these moments, seconds from its batch's begin; nothing prefetches them."""

    @tf.autograph.experimental.do_not_convert
    def tick(moment: tf.Tensor) -> tf.data.Dataset:
        due = BEGIN.read(BEGIN.handle()) + moment
        left_s = due - LATENESS.read(LATENESS.handle()) - tf.timestamp()
        left_us = tf.cast(tf.maximum(left_s * 1e6, 0.0), tf.int64)
        # Without `take` it would sleep once more before it finds that there is no second element.
        return _after_sleep(tf.data.Dataset.from_tensors(moment), left_us).take(1)

    options = tf.data.Options()
    options.experimental_optimization.apply_default_optimizations = False
    options.autotune.enabled = False
    return moments.flat_map(tick).with_options(options)


def _after_sleep(dataset: tf.data.Dataset, microseconds: tf.Tensor) -> tf.data.Dataset:
    """The dataset, of scalars, whose elements each come so long after they are asked for."""
    slow = tf.raw_ops.SleepDataset(
        input_dataset=tf.data.experimental.to_variant(dataset),
        sleep_microseconds=microseconds,
        output_types=[spec.dtype for spec in TICK],
        output_shapes=[spec.shape for spec in TICK],
    )
    return tf.data.experimental.from_variant(slow, dataset.element_spec)


def _calibrate(spacing_s: float = 0.005, count: int = 20) -> list[tf.Operation]:
    """Measure how late ticks are on the worker that executes this, and take it off from then on."""
    moments = [spacing_s * (number + 1) for number in range(count)]
    iterator = LocalIterator("accelerator/calibration", TICK)
    handle = iterator.handle()
    ready = assign(LATENESS.handle(), tf.constant(0.0, tf.float64))
    with tf.control_dependencies([ready]):
        timer = _timer(tf.data.Dataset.from_tensor_slices(tf.constant(moments, tf.float64)))
        started = iterator.start(timer)
    tick = _begin([started])
    late = []
    for moment in moments:
        with tf.control_dependencies([tick]):
            (tick,) = iterator.next(handle)
        with tf.control_dependencies([tick]):
            begin = BEGIN.read(BEGIN.handle())
        late.append(now_after([tick]) - begin - moment)
    return [assign(LATENESS.handle(), tf.minimum(tf.reduce_min(late), MOST_LATENESS_S))]
