"""TFRecord files, byte by byte: written so that a name stands for all of a file, and read back.

Decides how a file comes into being; both forms, of files and of `tf.train.Example`, are
TensorFlow's.  Without TensorFlow, a conversion begins at once, and its threads have no interpreter
to share with it.
"""

from __future__ import annotations

import hashlib
import os
import struct
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import BinaryIO

import google_crc32c

from ps_allreduce.errors import UserError
from ps_allreduce.point.inputs.data_set import FileOfRecords
from ps_allreduce.scratch import open_regular

#: What TFRecord files add to a checksum (tensorflow/core/lib/hash/crc32c.h).
_MASK = 0xA282EAD8

#: Keys of Protocol Buffers: the number of a field, and that its length follows.
_FIRST, _SECOND, _THIRD = b"\x0a", b"\x12", b"\x1a"


def _varint(number: int) -> bytes:
    """Seven bits a byte, the lowest first; two's complement of 64 bits."""
    number &= 2**64 - 1
    made = bytearray()
    while number > 127:
        made.append(number & 127 | 128)
        number >>= 7
    made.append(number)
    return bytes(made)


def _field(key: bytes, content: bytes) -> bytes:
    return key + _varint(len(content)) + content


_NAME_OF_IMAGE = _field(_FIRST, b"image")


def encoded_example(image: bytes, labels: Sequence[int]) -> bytes:
    """A `tf.train.Example` with `image` (bytes) and `label` (int64), as TensorFlow serialises it.

    The fields are those of tensorflow/core/example/example.proto and feature.proto: an Example has
    Features, a map from names to Feature, which is a list of bytes (1) or of int64 (3, packed).
    """
    feature = _field(_FIRST, _field(_FIRST, image))
    entry = _NAME_OF_IMAGE + _SECOND + _varint(len(feature)) + feature
    return _field(_FIRST, _field(_FIRST, entry) + _label_entry(tuple(labels)))


@lru_cache(maxsize=4096)
def _label_entry(labels: tuple[int, ...]) -> bytes:
    """Many examples have the same labels."""
    feature = _field(_THIRD, _field(_FIRST, b"".join(map(_varint, labels))))
    return _field(_FIRST, _field(_FIRST, b"label") + _field(_SECOND, feature))


def framed(record: bytes) -> bytes:
    """A record as a file holds it: length, checksum, data, checksum.

    Source: tensorflow/core/lib/io/record_writer.h.
    """
    length = struct.pack("<Q", len(record))
    parts = (
        length,
        _masked_checksum(length),
        record,
        _masked_checksum(record),
    )
    return b"".join(parts)


def _masked_checksum(content: bytes) -> bytes:
    """CRC-32C, turned by 15 bits, plus a constant."""
    crc = int(google_crc32c.value(content))
    return struct.pack("<I", (crc >> 15 | crc << 17) + _MASK & 0xFFFFFFFF)


def read_framed(stream: BinaryIO) -> Iterator[bytes]:
    """Every record of a file as the file holds it; checksums are not compared.

    Raises:
        ValueError: the file ends inside a record.
    """
    while header := stream.read(12):
        length = struct.unpack("<Q", header[:8])[0] if len(header) == 12 else 0
        rest = stream.read(length + 4)
        if len(header) + len(rest) < length + 16:
            raise ValueError("it ends inside a record")
        yield header + rest


def write_shard(path: Path, records: Iterable[bytes]) -> FileOfRecords:
    """Write records under a temporary name, and rename the file when the disk has it.

    Raises:
        UserError: no permission, or no space left.
    """
    partial = path.with_name(f".{path.name}.partial")
    try:
        path.parent.mkdir(exist_ok=True)
        try:
            made = _write(partial, path.name, records)
            partial.replace(path)
        finally:
            partial.unlink(missing_ok=True)
    except OSError as error:
        raise UserError(
            f"cannot write {path}: {error.strerror or error}. Files that are finished are kept: "
            "put this right and give the same command again."
        ) from error
    return made


def _write(partial: Path, name: str, records: Iterable[bytes]) -> FileOfRecords:
    digest, count, size = hashlib.sha256(), 0, 0
    with partial.open("wb") as stream:
        for record in records:
            content = framed(record)
            stream.write(content)
            digest.update(content)
            count, size = count + 1, size + len(content)
        stream.flush()
        os.fsync(stream.fileno())
    return FileOfRecords(name=name, records=count, num_bytes=size, sha256=digest.hexdigest())


def read_shard(path: Path) -> FileOfRecords | None:
    """What a file really holds; None where it is gone, cut short, or cannot be read."""
    digest, count, size = hashlib.sha256(), 0, 0
    try:
        with open_regular(path) as stream:
            for content in read_framed(stream):
                digest.update(content)
                count, size = count + 1, size + len(content)
    except (OSError, ValueError, MemoryError, OverflowError):
        return None
    return FileOfRecords(name=path.name, records=count, num_bytes=size, sha256=digest.hexdigest())
