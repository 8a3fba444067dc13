"""Files of images: found, checked, listed and written (TensorFlow).

A TFRecord file holds `tf.train.Example`s with `image` (encoded bytes, PNG or JPEG) and `label`
(integer).  Loose images are in a list on every host, whose order is that of no class: a short
shuffling suffices.  `exchange.readers` reads both.
"""

from __future__ import annotations

import io
import os
import struct
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import tensorflow as tf
from PIL import Image

from ps_allreduce.errors import HostFault, InputDataError, UserError
from ps_allreduce.exchange.readers import line_of
from ps_allreduce.point.inputs.data import PATTERN, Digits, RecordFiles
from ps_allreduce.point.inputs.image_files import ImageFiles, images_below
from ps_allreduce.scratch import open_regular, scratch_folder
from ps_allreduce.tf_texts import cause_of_file_error, essence

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
