"""Images in TFRecord files (TensorFlow).

Decides what a record is and how files are shared.  It imports nothing of the suite but its
neighbours: exported trainings take it along.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import tensorflow as tf

from .decoding import Images
from .reading import Settings


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
