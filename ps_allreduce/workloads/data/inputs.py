"""Input pipelines: synthetic images made on the worker, or images from TFRecord files.

Decides which images a worker sees in which step.  All strategies deal samples in the same way:
sample i goes to worker i modulo the number of workers, so the workers' batches of one step are
together the batch that a single worker with the whole batch would see, in another order.
"""

from __future__ import annotations

from pathlib import Path

import tensorflow as tf

from ps_allreduce.point.workload import SYNTHETIC, Workload
from ps_allreduce.workloads.data.tfrecords import record_files

#: Batches of synthetic images per worker; they are made once and then repeated from memory.
SYNTHETIC_BATCHES = 4

FEATURES = {
    "image": tf.io.FixedLenFeature([], tf.string),
    "label": tf.io.FixedLenFeature([], tf.int64),
}


def batch_specs(workload: Workload) -> tuple[tf.TensorSpec, tf.TensorSpec]:
    """Images float32 [batch, size, size, 3] in 0..1, labels int64 [batch]."""
    size, batch = workload.image_size, workload.batch_per_worker
    return tf.TensorSpec([batch, size, size, 3], tf.float32), tf.TensorSpec([batch], tf.int64)


def make_dataset(
    workload: Workload, num_workers: int, worker: tf.Tensor, data_dir: Path
) -> tf.data.Dataset:
    """Endless batches of one worker, deterministic in the workload's seed."""
    shard = tf.cast(worker, tf.int64)
    if workload.input == SYNTHETIC:
        return _synthetic(workload, num_workers, shard)
    return _from_records(workload, num_workers, shard, data_dir)


def _synthetic(workload: Workload, num_workers: int, shard: tf.Tensor) -> tf.data.Dataset:
    size = workload.image_size

    @tf.autograph.experimental.do_not_convert
    def sample(index: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        seed = tf.stack([tf.constant(workload.seed, tf.int64), index])
        image = tf.random.stateless_uniform([size, size, 3], seed)
        classes = workload.num_classes
        return image, tf.random.stateless_uniform([], seed, 0, classes, tf.int64)

    indices = tf.data.Dataset.range(1 << 40).shard(num_workers, shard)
    batches = indices.map(sample).batch(workload.batch_per_worker, drop_remainder=True)
    # Four batches per synchronisation's worth: accumulated batches must not repeat within a step.
    return batches.take(SYNTHETIC_BATCHES * workload.accumulation).cache().repeat()


def _from_records(
    workload: Workload, num_workers: int, shard: tf.Tensor, data_dir: Path
) -> tf.data.Dataset:
    files = [str(path) for path in record_files(workload.input, data_dir)]
    size = workload.image_size

    @tf.autograph.experimental.do_not_convert
    def decode(record: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        parsed = tf.io.parse_single_example(record, FEATURES)
        image = tf.io.decode_image(parsed["image"], channels=3, expand_animations=False)
        image = tf.image.resize(tf.ensure_shape(image, [None, None, 3]), [size, size])
        label = parsed["label"]
        in_range = tf.debugging.assert_less(
            label,
            tf.constant(workload.num_classes, tf.int64),
            message=f"a label is not below num_classes {workload.num_classes}",
        )
        with tf.control_dependencies([in_range]):
            return image / 255.0, tf.identity(label)

    records = tf.data.TFRecordDataset(files).repeat()
    mine = records.shuffle(2048, seed=workload.seed).shard(num_workers, shard)
    batches = mine.map(decode).batch(workload.batch_per_worker, drop_remainder=True)
    return batches.prefetch(2)
