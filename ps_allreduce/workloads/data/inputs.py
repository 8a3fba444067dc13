"""Input pipelines: synthetic images made on the worker, or images from TFRecord files.

Decides which images a worker sees in which step.  All strategies deal samples in the same way:
sample i goes to worker i modulo the number of workers.  So the workers' batches of one step are
together the batch of a single worker with the whole batch, in another order.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import tensorflow as tf

from ps_allreduce.point.data import Synthetic
from ps_allreduce.point.workload import Workload
from ps_allreduce.workloads.data.tfrecords import record_files

#: Batches of synthetic images per worker, made once and then repeated from memory.
SYNTHETIC_BATCHES = 4

FEATURES = {
    "image": tf.io.FixedLenFeature([], tf.string),
    "label": tf.io.FixedLenFeature([], tf.int64),
}


def batch_specs(workload: Workload) -> tuple[tf.TensorSpec, tf.TensorSpec]:
    """Examples float32 [batch, *shape], images in 0..1, and labels int64 [batch]."""
    batch, shape = workload.batch_per_worker, workload.model.example_shape
    return tf.TensorSpec([batch, *shape], tf.float32), tf.TensorSpec([batch], tf.int64)


def make_dataset(
    workload: Workload, num_workers: int, worker: tf.Tensor, data_dir: Path
) -> tf.data.Dataset:
    """Endless batches of one worker, deterministic in the workload's seed."""
    shard = tf.cast(worker, tf.int64)
    if isinstance(workload.data, Synthetic):
        return _synthetic(workload, num_workers, shard)
    files = record_files(workload.data, data_dir)
    return _from_records(workload, files, num_workers, shard)


def _synthetic(workload: Workload, num_workers: int, shard: tf.Tensor) -> tf.data.Dataset:
    model = workload.model

    @tf.autograph.experimental.do_not_convert
    def sample(index: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        seed = tf.stack([tf.constant(workload.seed, tf.int64), index])
        example = tf.random.stateless_uniform(model.example_shape, seed)
        return example, tf.random.stateless_uniform([], seed, 0, model.num_classes, tf.int64)

    indices = tf.data.Dataset.range(1 << 40).shard(num_workers, shard)
    batches = indices.map(sample).batch(workload.batch_per_worker, drop_remainder=True)
    # So many for each accumulated batch: batches must not repeat within a step.
    return batches.take(SYNTHETIC_BATCHES * workload.accumulation).cache().repeat()


def _from_records(
    workload: Workload, files: Sequence[Path], num_workers: int, shard: tf.Tensor
) -> tf.data.Dataset:
    height, width, _ = workload.model.example_shape
    num_classes = workload.model.num_classes

    @tf.autograph.experimental.do_not_convert
    def decode(record: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        parsed = tf.io.parse_single_example(record, FEATURES)
        image = tf.io.decode_image(parsed["image"], channels=3, expand_animations=False)
        image = tf.image.resize(tf.ensure_shape(image, [None, None, 3]), [height, width])
        label = parsed["label"]
        in_range = tf.debugging.assert_less(
            label,
            tf.constant(num_classes, tf.int64),
            message=f"a label is not below num_classes {num_classes}",
        )
        with tf.control_dependencies([in_range]):
            return image / 255.0, tf.identity(label)

    records = tf.data.TFRecordDataset([str(path) for path in files]).repeat()
    dealt = records.shuffle(2048, seed=workload.seed).shard(num_workers, shard)
    batches = dealt.map(decode).batch(workload.batch_per_worker, drop_remainder=True)
    return batches.prefetch(2)
