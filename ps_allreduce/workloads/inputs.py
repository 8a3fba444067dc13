"""The pipelines that hand a worker its batches, and the files of images they read (TensorFlow).

Decides which examples a worker sees in which step.  All strategies deal examples in the same way.
Where they are made up, or read in order, example i goes to worker i modulo the number of workers.
So the workers' batches of one step are together the batch of a single worker with the whole batch,
in another order.  Files that are not read in order are shared (`reading`, decision 0019).  Only a
dataset of the user's own is dealt by the user.  A single worker can also be dealt to as several
would be (`Workload.dealt_to`): then its batches are theirs, in turn.

A TFRecord file holds `tf.train.Example`s with `image` (encoded bytes, PNG or JPEG) and `label`
(integer).  Loose images are in a list on every host, whose order is that of no class: a short
shuffling suffices.
"""

from __future__ import annotations

import io
import os
import struct
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import tensorflow as tf
from PIL import Image

from ps_allreduce.errors import HostFault, InputDataError, UserError
from ps_allreduce.exchange.drawn_examples import DrawnExamples
from ps_allreduce.exchange.reading import (
    ImageReader,
    Images,
    Reader,
    RecordReader,
    Settings,
    WorkerShare,
    endless_batches,
    line_of,
)
from ps_allreduce.point.inputs.data import PATTERN, Digits, InputFiles, RecordFiles
from ps_allreduce.point.inputs.data_set import ExampleForm, Target
from ps_allreduce.point.inputs.image_files import ImageFiles, images_below
from ps_allreduce.point.models.trained import ImageModel
from ps_allreduce.point.workload import Workload
from ps_allreduce.scratch import open_regular, scratch_folder
from ps_allreduce.tf_texts import cause_of_file_error, essence
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


RECORDS_PER_FILE = 5000


def record_files(data: Digits | RecordFiles, data_dir: Path) -> list[Path]:
    """The TFRecord files of the data.

    Raises:
        InputDataError: there are none.
        HostFault: there are none, and the suite itself had made them.
    """
    folder = Path(data.path) if isinstance(data, RecordFiles) else data_dir / Digits.kind
    files = sorted(folder.glob(PATTERN))
    if not files and isinstance(data, Digits):
        raise HostFault(f"the input that was made in {folder} is gone.")
    if not files:
        raise InputDataError(
            f"no {PATTERN} file in {folder}: python -m experiments convert makes them from a data "
            "set."
        )
    return files


def check_files(files: Iterable[Path]) -> int:
    """Count the records of all files, and see that none is cut short.

    Looks only at where records begin and end; TensorFlow compares checksums when it reads.  A
    record is length, checksum, data, checksum (tensorflow/core/lib/io/record_writer.h).

    Raises:
        InputDataError: a file is truncated, no TFRecord file, empty, or not readable.
    """
    total = 0
    for path in files:
        try:
            with path.open("rb") as stream:
                count = _count_records(stream, path.stat().st_size, path)
        except OSError as error:
            raise InputDataError(f"{path} cannot be read: {error.strerror}.") from error
        if count == 0:
            raise InputDataError(f"{path} holds no record.")
        total += count
    return total


def _count_records(stream: io.BufferedIOBase | io.BufferedReader, size: int, path: Path) -> int:
    count, offset = 0, 0
    while offset < size:
        header = stream.read(12)
        length = struct.unpack("<Q", header[:8])[0] if len(header) == 12 else size
        offset += 16 + length
        if offset > size:
            raise InputDataError(
                f"{path} is truncated or no TFRecord file: record {count} ends at byte {offset} "
                f"but the file has {size}. Write it again."
            )
        stream.seek(offset)
        count += 1
    return count


def write_digits(data_dir: Path) -> Path:
    """Write scikit-learn's 1,797 handwritten digits (8x8 pixels) as PNG records, once.

    Returns:
        The folder of the files.
    """

    def samples() -> Iterator[tuple[bytes, int]]:
        # Not for every task: it takes a second to import.
        from sklearn.datasets import load_digits

        digits = load_digits()
        for pixels, label in zip(digits.images, digits.target, strict=True):
            stream = io.BytesIO()
            Image.fromarray((pixels * (255 / 16)).astype(np.uint8)).save(stream, "PNG")
            yield stream.getvalue(), int(label)

    folder = data_dir / Digits.kind
    if not list(folder.glob(PATTERN)):
        _write(folder, samples())
    return folder


def _write(folder: Path, samples: Iterable[tuple[bytes, int]]) -> None:
    """Write records in a folder of this process and move them at the end: a half-written file never
    has a name that is looked for, and whoever writes the same at once has files of its own.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with scratch_folder(folder) as scratch:
            _write_parts(scratch, samples)
            for path in scratch.iterdir():
                path.replace(folder / path.name)
    except (OSError, tf.errors.OpError) as error:
        raise UserError(f"cannot write TFRecord files to {folder}: {_cause(error)}.") from error
    except HostFault as error:
        raise UserError(f"cannot write TFRecord files: {error}") from error


def _cause(error: OSError | tf.errors.OpError) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return cause_of_file_error(str(error))


def _write_parts(folder: Path, samples: Iterable[tuple[bytes, int]]) -> None:
    writers: list[tf.io.TFRecordWriter] = []
    for count, (image, label) in enumerate(samples):
        if count % RECORDS_PER_FILE == 0:
            path = folder / f"part-{len(writers):05d}.tfrecord"
            writers.append(tf.io.TFRecordWriter(str(path)))
        writers[-1].write(_example(image, label))
    for writer in writers:
        writer.close()


def _example(image: bytes, label: int) -> bytes:
    features = {
        "image": tf.train.Feature(bytes_list=tf.train.BytesList(value=[image])),
        "label": tf.train.Feature(int64_list=tf.train.Int64List(value=[label])),
    }
    example = tf.train.Example(features=tf.train.Features(feature=features))
    return bytes(example.SerializeToString())


#: So long is looked for a damaged image.
SEARCH_S = 60.0


def existing_list(data: ImageFiles, data_dir: Path) -> Path:
    """The list that was made.

    Raises:
        HostFault: it is gone.
    """
    path = data.listed_in(data_dir)
    if not path.is_file():
        raise HostFault(f"the list of images that was made in {path} is gone.")
    return path


def write_list(data: ImageFiles, data_dir: Path) -> int:
    """Look for all images, and list them if they are those that were asked for.

    Returns:
        How many there are.

    Raises:
        InputDataError: they are others, or the list cannot be written.
    """
    folder = Path(data.path)
    images = images_below(folder)
    if ImageFiles.of(folder, images) != replace(data, place=None):
        raise InputDataError(
            f"the images in {folder} on {os.uname().nodename} are not those that the sweep was "
            "planned with: copy the same files there, or begin again with these."
        )
    order = np.random.default_rng(0).permutation(len(images))
    lines = (line_of(images[at].label, images[at].name) for at in order)
    path = data.listed_in(data_dir)
    unfinished = path.with_suffix(f".{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished.write_bytes(b"".join(os.fsencode(line) + b"\n" for line in lines))
        unfinished.replace(path)
    except OSError as error:
        raise InputDataError(f"cannot write {path}: {error.strerror or error}.") from error
    finally:
        unfinished.unlink(missing_ok=True)
    return len(images)


def damage_in(data: ImageFiles) -> str | None:
    """The first image that TensorFlow cannot decode, and why; None if none was found in time."""
    ends_at = time.monotonic() + SEARCH_S
    folder = Path(data.path)
    for image in images_below(folder):
        try:
            with open_regular(folder / image.name) as stream:
                tf.io.decode_image(stream.read(), channels=3, expand_animations=False)
        except (OSError, tf.errors.OpError) as error:
            reason = essence(str(error)).rstrip(".")
            return f"{folder / image.name} is damaged: {reason}."
        if time.monotonic() > ends_at:
            return None
    return None
