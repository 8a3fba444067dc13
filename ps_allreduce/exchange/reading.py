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
    reader: Reader,
    settings: Settings,
    *,
    num_workers: int,
    worker: tf.Tensor | int,
    batch: int,
    seed: int,
    skipped: int = 0,
) -> tf.data.Dataset:
    """Batches of one worker: images [batch, size, size, channels], and their targets.

    Args:
        skipped: so many of the worker's examples are left out at first.
    """
    shard = tf.cast(worker, tf.int64)
    decode = tf.autograph.experimental.do_not_convert(reader.decode)
    found = _epoch(reader, settings, num_workers, shard, seed)
    if settings.cache:
        found = _mapped(found, decode, settings).cache()
    found = found.repeat()
    if settings.shuffle:
        found = found.shuffle(settings.shuffle, seed=seed)
    if settings.ordered:
        found = found.shard(num_workers, shard)
    if skipped:
        found = found.skip(skipped)
    examples = found if settings.cache else _mapped(found, decode, settings)
    batches = examples.batch(batch, drop_remainder=True)
    if settings.flips:
        numbers = tf.data.Dataset.range(skipped, 1 << 40, batch)
        batches = _mirrored(batches, numbers, settings, Coins(num_workers, shard, batch, seed))
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


def _epoch(
    reader: Reader, settings: Settings, num_workers: int, shard: tf.Tensor, seed: int
) -> tf.data.Dataset:
    """In order, all workers read everything, and take their examples behind the shuffling."""
    if settings.ordered:
        return reader.everything()
    return reader.share(num_workers, shard, settings, seed)


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
    batches: tf.data.Dataset, numbers: tf.data.Dataset, settings: Settings, coins: Coins
) -> tf.data.Dataset:
    """Whole batches: coins of single images would cost as much as decoding them."""

    def mirror(first: tf.Tensor, batch: tuple[tf.Tensor, tf.Tensor]) -> tuple[tf.Tensor, tf.Tensor]:
        images, targets = batch
        heads = tf.reshape(coins.heads(first), [-1, 1, 1, 1])
        return tf.where(heads, tf.reverse(images, [2]), images), targets

    plain = tf.autograph.experimental.do_not_convert(mirror)
    return _mapped(tf.data.Dataset.zip((numbers, batches)), plain, settings)


@dataclass(frozen=True, slots=True)
class Coins:
    """A coin for every example, by its number among those of all workers."""

    num_workers: int
    worker: tf.Tensor
    batch: int
    seed: int

    def heads(self, first: tf.Tensor) -> tf.Tensor:
        """Of a batch, bool [batch], that begins with the worker's example of that number.

        The mixing function is SplitMix64 (Steele, Lea and Flood, OOPSLA 2014).
        """
        numbers = (first + tf.range(self.batch, dtype=tf.int64)) * self.num_workers + self.worker
        state = tf.cast(numbers + (self.seed << 40), tf.uint64)
        state *= tf.constant(0x9E3779B97F4A7C15, tf.uint64)
        for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
            shifted = tf.bitwise.right_shift(state, tf.constant(shift, tf.uint64))
            state = tf.bitwise.bitwise_xor(state, shifted) * tf.constant(factor, tf.uint64)
        return tf.bitwise.right_shift(state, tf.constant(63, tf.uint64)) > 0
