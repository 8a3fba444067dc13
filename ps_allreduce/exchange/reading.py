"""Images in files, and endless batches of one worker from them (TensorFlow).

Decides how images in TFRecord files, and loose ones, become what a model takes, who reads what
(decision 0019), and everything behind a reader: cache, shuffling, decoding, mirroring, batches.  It
imports nothing of the suite: exported trainings take it along.
"""

from __future__ import annotations

from collections.abc import Sequence
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


#: A value is told as a hundredth of itself.
VALUE_SCALE = 100.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Images:
    """What images are, and what becomes of them.

    Attributes:
        encoding: `encoded` (JPEG, PNG, BMP, GIF), or `uint16`: little-endian numbers of 16 bits.
        channels: of an image, as stored and as taken.
        stored_size: pixels of the square images; None where they differ.
        size: pixels that the model takes.
        highest: divides the numbers of pixels; what is above it becomes 1.
        target: `class`, `labels` or `value`.
        num_outputs: classes or labels that the model tells; 1 for a value.
    """

    encoding: str = "encoded"
    channels: int = 3
    stored_size: int | None = None
    size: int
    highest: float = 255.0
    target: str = "class"
    num_outputs: int

    def image(self, content: tf.Tensor) -> tf.Tensor:
        """A stored image, scalar string, as float32 [size, size, channels] from 0 to 1.

        A JPEG in grey or CMYK gets three channels too.  How a camera was held (EXIF) is not read.
        """
        pixels = self._numbers(content) if self.encoding == "uint16" else self._decoded(content)
        return tf.image.resize(pixels, [self.size, self.size]) / self.highest

    def _decoded(self, content: tf.Tensor) -> tf.Tensor:
        pixels = tf.io.decode_image(content, channels=self.channels, expand_animations=False)
        return tf.ensure_shape(pixels, [self.stored_size, self.stored_size, self.channels])

    def _numbers(self, content: tf.Tensor) -> tf.Tensor:
        assert self.stored_size is not None
        shape = [self.stored_size, self.stored_size, self.channels]
        numbers = tf.io.decode_raw(content, tf.uint16)
        fits = tf.debugging.assert_equal(
            tf.size(numbers), tf.reduce_prod(shape), f"an image is not of the shape {shape}"
        )
        with tf.control_dependencies([fits]):
            shaped = tf.reshape(tf.cast(numbers, tf.float32), shape)
        return tf.minimum(shaped, self.highest)

    def told(self, label: tf.Tensor) -> tf.Tensor:
        """The target of an example, from int64 [numbers of its label].

        A class is int64 [], labels are float32 [num_outputs] of 0 and 1, a value is float32 [1].
        """
        if self.target == "value":
            return tf.ensure_shape(tf.cast(label, tf.float32) / VALUE_SCALE, [1])
        named = "num_classes" if self.target == "class" else "the number of labels,"
        in_range = tf.debugging.assert_less(
            tf.cast(label, tf.uint64),  # what is below 0 becomes very large
            tf.constant(self.num_outputs, tf.uint64),
            f"a label is not below {named} {self.num_outputs}, or is below 0",
        )
        with tf.control_dependencies([in_range]):
            if self.target == "class":
                return tf.reshape(label, [])
            marks = tf.one_hot(label, self.num_outputs)
            return tf.minimum(tf.reduce_sum(marks, axis=0), 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordReader:
    """Reads `tf.train.Example`s with `image` (bytes) and `label` (integers).

    TensorFlow compares checksums of records as it reads them.

    Attributes:
        files: paths, in the same order everywhere.
    """

    files: Sequence[str]
    images: Images

    def everything(self) -> tf.data.Dataset:
        """All records, one file after the other."""
        return tf.data.TFRecordDataset(list(self.files))

    def share(
        self, num_workers: int, worker: tf.Tensor, settings: Settings, seed: int
    ) -> tf.data.Dataset:
        """The records of every n-th file; with more workers than files, every n-th record."""
        if len(self.files) < num_workers:
            return self.everything().shard(num_workers, worker)
        own = tf.data.Dataset.from_tensor_slices(list(self.files)).shard(num_workers, worker)
        if settings.shuffle:
            own = own.shuffle(len(self.files), seed=seed)
        return own.interleave(
            tf.data.TFRecordDataset,
            cycle_length=settings.parallel_reads,
            num_parallel_calls=settings.parallel_reads or tf.data.AUTOTUNE,
            deterministic=False,
        )

    def decode(self, example: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Image and target of a record."""
        # Any number of labels takes longer to read than one number.
        several = self.images.target == "labels"
        label = tf.io.VarLenFeature(tf.int64) if several else tf.io.FixedLenFeature([1], tf.int64)
        features = {"image": tf.io.FixedLenFeature([], tf.string), "label": label}
        parsed = tf.io.parse_single_example(example, features)
        told = tf.sparse.to_dense(parsed["label"]) if several else parsed["label"]
        return self.images.image(parsed["image"]), self.images.told(told)


#: Digits of the number of a class, which begins a line; the name of the file follows.
LABEL_DIGITS = 7

#: Longer than any name.
REST = 1 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageReader:
    """Reads a file for each line of a list.

    Attributes:
        folder: that the names in the list are relative to.
        listed: the path of the list.
    """

    folder: str
    listed: str
    images: Images

    def everything(self) -> tf.data.Dataset:
        """The lines of the list."""
        return tf.data.TextLineDataset(self.listed)

    def share(
        self, num_workers: int, worker: tf.Tensor, settings: Settings, seed: int
    ) -> tf.data.Dataset:
        """Every n-th line."""
        return self.everything().shard(num_workers, worker)

    def decode(self, example: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Image and target of a line."""
        label = tf.strings.to_number(tf.strings.substr(example, 0, LABEL_DIGITS), tf.int64)
        name = tf.strings.substr(example, LABEL_DIGITS, REST)
        content = tf.io.read_file(tf.strings.join([self.folder, "/", name]))
        return self.images.image(content), self.images.told(tf.reshape(label, [1]))


def line_of(label: int, name: str) -> str:
    """A line of the list, without its end."""
    return f"{label:0{LABEL_DIGITS}d}{name}"
