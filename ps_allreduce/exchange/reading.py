"""Endless batches of one worker from whatever a reader finds in files (TensorFlow).

Decides who reads what (decision 0019), and everything behind a reader: cache, shuffling, decoding,
mirroring, batches.  It imports nothing of the suite: exported trainings take it along.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import tensorflow as tf


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How files are read.

    Attributes:
        ordered: the same examples in the same step for every number of workers.
        parallel_reads, parallel_maps: files and images at once; None leaves it to tf.data.
        prefetch: batches that are made beforehand.
        cache: decoded images are kept in memory.
        shuffle: the next example is drawn from so many; 0 shuffles nothing.
        flips: half of the images are mirrored.
    """

    ordered: bool = False
    parallel_reads: int | None = None
    parallel_maps: int | None = None
    prefetch: int = 2
    cache: bool = False
    shuffle: int = 2048
    flips: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerShare:
    """The part of all examples that one worker trains with.

    Attributes:
        worker: its number.
        batch: its examples in a step.
        seed: of everything that is drawn.
    """

    num_workers: int
    worker: tf.Tensor | int
    batch: int
    seed: int

    @property
    def index(self) -> tf.Tensor:
        """The worker's number, int64."""
        return tf.cast(self.worker, tf.int64)

    def heads(self, first: tf.Tensor) -> tf.Tensor:
        """A coin for every example of a batch, bool [batch], by its number among all examples.

        The mixing function is SplitMix64 (Steele, Lea and Flood, OOPSLA 2014).

        Args:
            first: number of the batch's first example among those of the worker, int64.
        """
        numbers = (first + tf.range(self.batch, dtype=tf.int64)) * self.num_workers + self.index
        state = tf.cast(numbers + (self.seed << 40), tf.uint64)
        state *= tf.constant(0x9E3779B97F4A7C15, tf.uint64)
        for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
            shifted = tf.bitwise.right_shift(state, tf.constant(shift, tf.uint64))
            state = tf.bitwise.bitwise_xor(state, shifted) * tf.constant(factor, tf.uint64)
        return tf.bitwise.right_shift(state, tf.constant(63, tf.uint64)) > 0


class Reader(Protocol):
    """Finds examples in files; an example is a scalar string until it is decoded."""

    def everything(self) -> tf.data.Dataset:
        """All examples once, in the same order everywhere."""
        ...

    def share(
        self, num_workers: int, worker: tf.Tensor, settings: Settings, seed: int
    ) -> tf.data.Dataset:
        """One worker's examples once: those of all workers are all examples, each once."""
        ...

    def decode(self, example: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """The image, float32 [size, size, channels], and its target."""
        ...


def endless_batches(
    reader: Reader, settings: Settings, share: WorkerShare, *, skipped: int = 0
) -> tf.data.Dataset:
    """Batches of one worker: images [batch, size, size, channels], and their targets.

    Args:
        skipped: so many of the worker's examples are left out at first.
    """
    decode = tf.autograph.experimental.do_not_convert(reader.decode)
    found = _epoch(reader, settings, share)
    if settings.cache:
        found = _mapped(found, decode, settings).cache()
    found = found.repeat()
    if settings.shuffle:
        found = found.shuffle(settings.shuffle, seed=share.seed)
    if settings.ordered:
        found = found.shard(share.num_workers, share.index)
    if skipped:
        found = found.skip(skipped)
    examples = found if settings.cache else _mapped(found, decode, settings)
    batches = examples.batch(share.batch, drop_remainder=True)
    if settings.flips:
        numbers = tf.data.Dataset.range(skipped, 1 << 40, share.batch)
        batches = _mirrored(batches, numbers, settings, share)
    if settings.prefetch:
        batches = batches.prefetch(settings.prefetch)
    is_bare = settings.prefetch == 0 or settings.parallel_maps == 1
    return _as_asked(batches) if is_bare else batches


def _as_asked(batches: tf.data.Dataset) -> tf.data.Dataset:
    """By itself TensorFlow adds a buffer, and threads, to a pipeline that is to have none."""
    options = tf.data.Options()
    options.experimental_optimization.inject_prefetch = False
    options.experimental_optimization.map_parallelization = False
    options.experimental_optimization.map_and_batch_fusion = False
    return batches.with_options(options)


def _epoch(reader: Reader, settings: Settings, share: WorkerShare) -> tf.data.Dataset:
    """In order, all workers read everything, and take their examples behind the shuffling."""
    if settings.ordered:
        return reader.everything()
    return reader.share(share.num_workers, share.index, settings, share.seed)


def _mapped(examples: tf.data.Dataset, function: object, settings: Settings) -> tf.data.Dataset:
    """One at a time needs no threads of its own."""
    if settings.parallel_maps == 1:
        return examples.map(function)
    return examples.map(
        function,
        num_parallel_calls=settings.parallel_maps or tf.data.AUTOTUNE,
        deterministic=settings.ordered,
    )


def _mirrored(
    batches: tf.data.Dataset, numbers: tf.data.Dataset, settings: Settings, share: WorkerShare
) -> tf.data.Dataset:
    """Whole batches: coins of single images would cost as much as decoding them."""

    def mirror(first: tf.Tensor, batch: tuple[tf.Tensor, tf.Tensor]) -> tuple[tf.Tensor, tf.Tensor]:
        images, targets = batch
        heads = tf.reshape(share.heads(first), [-1, 1, 1, 1])
        return tf.where(heads, tf.reverse(images, [2]), images), targets

    plain = tf.autograph.experimental.do_not_convert(mirror)
    return _mapped(tf.data.Dataset.zip((numbers, batches)), plain, settings)
