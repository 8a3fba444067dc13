"""The pipelines that hand a worker its batches (TensorFlow).

Decides which examples a worker sees in which step.  All strategies deal examples in the same way.
Where they are made up, or read in order, example i goes to worker i modulo the number of workers.
So the workers' batches of one step are together the batch of a single worker with the whole batch,
in another order.  Files that are not read in order are shared (`reading`, decision 0019).  Only a
dataset of the user's own is dealt by the user.  A single worker can also be dealt to as several
would be (`Workload.dealt_to`): then its batches are theirs, in turn.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

import tensorflow as tf

from ps_allreduce.exchange.drawn_examples import DrawnExamples
from ps_allreduce.exchange.readers import ImageReader, Images, RecordReader
from ps_allreduce.exchange.reading import Reader, Settings, WorkerShare, endless_batches
from ps_allreduce.point.inputs.data import Digits, InputFiles
from ps_allreduce.point.inputs.data_set import ExampleForm, Target
from ps_allreduce.point.inputs.image_files import ImageFiles
from ps_allreduce.point.models.trained import ImageModel
from ps_allreduce.point.workload import Workload
from ps_allreduce.workloads.input_files import existing_list, record_files
from ps_allreduce.workloads.own_dataset import DatasetExamples

#: Batches of synthetic examples per worker, made once and then repeated from memory.
SYNTHETIC_BATCHES = 4

#: No class has a number as high.
ANY_CLASS = 1 << 40

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
        endless = examples.of_worker(worker, num_workers, workload.seed).repeat()
        return endless.batch(workload.batch_per_worker, drop_remainder=True).prefetch(2)
    shard = tf.cast(worker, tf.int64)
    if isinstance(workload.data, Digits | InputFiles):
        return _from_files(workload, data_dir, num_workers, shard)
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


def _from_files(
    workload: Workload, data_dir: Path, num_workers: int, shard: tf.Tensor
) -> tf.data.Dataset:
    share = WorkerShare(
        num_workers=num_workers,
        worker=shard,
        batch=workload.batch_per_worker,
        seed=workload.seed,
    )
    return endless_batches(
        reader_of(workload, data_dir), Settings(**workload.reading.reading()), share
    )


def reader_of(workload: Workload, data_dir: Path) -> Reader:
    """What finds the workload's examples in files.

    Raises:
        InputDataError: there are none.
        HostFault: there are none, and the suite itself had made them.
    """
    data = workload.data
    assert isinstance(data, Digits | InputFiles)
    images = _images_of(workload, data.form)
    if isinstance(data, ImageFiles):
        listed = existing_list(data, data_dir)
        return ImageReader(folder=data.path, listed=str(listed), images=images)
    return RecordReader(files=[str(each) for each in record_files(data, data_dir)], images=images)


def _images_of(workload: Workload, form: ExampleForm) -> Images:
    """Weights alone tell nothing: for them whatever the data tell is read."""
    model, size = workload.model, workload.read_size
    assert size is not None
    outputs = ANY_CLASS if form.target is Target.CLASS else form.num_outputs
    if isinstance(model, ImageModel):
        outputs = model.num_classes
    return Images(**form.images(size, outputs))
