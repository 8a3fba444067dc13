"""TFRecord files of images: found, checked and written (TensorFlow).

A TFRecord file holds `tf.train.Example`s with `image` (encoded bytes, PNG or JPEG) and `label`
(integer).  `record_reader` reads them.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import tensorflow as tf
from PIL import Image

from ps_allreduce.errors import HostFault, InputDataError, UserError
from ps_allreduce.point.inputs.data import PATTERN, Digits, RecordFiles
from ps_allreduce.scratch import scratch_folder
from ps_allreduce.tf_internals.texts import cause_of_file_error

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
