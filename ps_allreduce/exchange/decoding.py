"""From the bytes of an image and the numbers of its label to what a model takes (TensorFlow).

Decides sizes, ranges and the form of targets.  It imports nothing of the suite: exported trainings
take it along.  All of it is operations of a graph: workers that a chief drives run no Python.
"""

from __future__ import annotations

from dataclasses import dataclass

import tensorflow as tf

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
