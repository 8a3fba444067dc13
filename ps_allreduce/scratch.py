"""Temporary folders that are found again when their process could not remove them.

Decides their names: host and process are in them, so that whoever starts next on the same host can
tell those of dead processes, and leaves everybody else's alone.
"""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

PREFIX = "ps-allreduce-"


def scratch_prefix() -> str:
    """The beginning of the names of this process's temporary folders."""
    return f"{PREFIX}{os.getpid()}-{socket.gethostname()}-"


@contextmanager
def scratch_folder(parent: Path) -> Iterator[Path]:
    """A private folder below another one; gone when the context is left."""
    remove_left_overs(parent)
    path = Path(tempfile.mkdtemp(prefix=scratch_prefix(), dir=parent))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def remove_left_overs(folder: Path) -> None:
    """Remove what killed processes left: ours, of this host, and of no living process."""
    for path in folder.glob(f"{PREFIX}*-{socket.gethostname()}-*"):
        owner = path.name.removeprefix(PREFIX).split("-")[0]
        with suppress(OSError):
            mine = path.stat().st_uid == os.getuid()
            if mine and owner.isdecimal() and not Path("/proc", owner).exists():
                shutil.rmtree(path, ignore_errors=True)
