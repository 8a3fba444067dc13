"""One TFRecord file: written so that its name stands for all of it, and read back.

Decides how a file comes into being; which files there are is decided in `plan`.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from pathlib import Path

from experiments.data_sets.records import framed, read_framed
from ps_allreduce.errors import UserError
from ps_allreduce.point.inputs.data_set import FileOfRecords
from ps_allreduce.scratch import open_regular


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
