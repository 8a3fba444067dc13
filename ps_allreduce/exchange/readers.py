"""Images in TFRecord files, and loose ones: from bytes to what a model takes (TensorFlow).

Decides what a record is, how files are shared, and sizes, ranges and the form of targets.  Loose
files are named in a list, which is a file itself: a graph that held a million names would be sent
to every worker.  All of it is operations of a graph: workers that a chief drives run no Python.  It
imports nothing of the suite but its neighbours: exported trainings take it along.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import tensorflow as tf

from .reading import Settings

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
