"""The pipelines that hand a worker its batches (TensorFlow).

Decides which examples a worker sees in which step.  All strategies deal examples in the same way:
example i goes to worker i modulo the number of workers.  So the workers' batches of one step are
together the batch of a single worker with the whole batch, in another order.  Only a dataset of the
user's own is dealt by the user.  A single worker can also be dealt to as several would be
(`Workload.dealt_to`): then its batches are theirs, in turn.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

import tensorflow as tf

from ps_allreduce.exchange.drawn_examples import DrawnExamples
from ps_allreduce.point.architectures import ImageModel
from ps_allreduce.point.data import Digits, RecordFiles
from ps_allreduce.point.workload import Workload
from ps_allreduce.workloads.image_files import FEATURES, record_files
from ps_allreduce.workloads.own_dataset import DatasetExamples

#: Batches of synthetic examples per worker, made once and then repeated from memory.
SYNTHETIC_BATCHES = 4

#: A worker's number; a tensor where one function is traced for all workers.
WorkerIndex: TypeAlias = "int | tf.Tensor"


def batch_structure(workload: Workload, examples: DrawnExamples | DatasetExamples) -> Any:
    """Nested `tf.TensorSpec`s of a batch of (inputs, targets[, weights])."""
    batch = workload.batch_per_worker
    return tf.nest.map_structure(
        lambda spec: tf.TensorSpec([batch, *spec.shape], spec.dtype), examples.structure
    )


def make_dataset(
    workload: Workload,
    num_workers: int,
    worker: WorkerIndex,
    data_dir: Path,
    examples: DrawnExamples | DatasetExamples,
) -> tf.data.Dataset:
    """Endless batches of one worker, deterministic in the workload's seed."""
    dealt_to = workload.dealt_to
    if dealt_to is None:
        return _shard(workload, num_workers, worker, data_dir, examples)
    share = replace(workload, accumulation=workload.accumulation // dealt_to, dealt_to=None)
    shards = [_shard(share, dealt_to, index, data_dir, examples) for index in range(dealt_to)]
    turns = tf.data.Dataset.range(dealt_to).repeat()
    return tf.data.Dataset.choose_from_datasets(shards, turns)


def _shard(
    workload: Workload,
    num_workers: int,
    worker: WorkerIndex,
    data_dir: Path,
    examples: DrawnExamples | DatasetExamples,
) -> tf.data.Dataset:
    """What one of so many workers takes."""
    if isinstance(examples, DatasetExamples):
        assert isinstance(worker, int)
        endless = examples.of_worker(worker, num_workers).repeat()
        return endless.batch(workload.batch_per_worker, drop_remainder=True).prefetch(2)
    shard = tf.cast(worker, tf.int64)
    if isinstance(workload.data, Digits | RecordFiles):
        files = record_files(workload.data, data_dir)
        return _from_records(workload, files, num_workers, shard)
    return _synthetic(workload, examples, num_workers, shard)


def _synthetic(
    workload: Workload, examples: DrawnExamples, num_workers: int, shard: tf.Tensor
) -> tf.data.Dataset:
    @tf.autograph.experimental.do_not_convert
    def sample(index: tf.Tensor) -> tuple[tf.Tensor, ...]:
        # Flat: a dataset would make one tensor of a list.
        return tuple(tf.nest.flatten(examples.draw(workload.seed, index)))

    indices = tf.data.Dataset.range(1 << 40).shard(num_workers, shard)
    batches = indices.map(sample).batch(workload.batch_per_worker, drop_remainder=True)
    # So many for each accumulated batch: batches must not repeat within a step.
    return batches.take(SYNTHETIC_BATCHES * workload.accumulation).cache().repeat()


def _from_records(
    workload: Workload, files: Sequence[Path], num_workers: int, shard: tf.Tensor
) -> tf.data.Dataset:
    assert isinstance(workload.model, ImageModel)
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
