"""Loose image files (TensorFlow).

Decides the form of the list of files, which is a file itself: a graph that held a million names
would be sent to every worker.  It imports nothing of the suite but its neighbours: exported
trainings take it along.
"""

from __future__ import annotations

from dataclasses import dataclass

import tensorflow as tf

from .decoding import Images
from .reading import Settings

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
