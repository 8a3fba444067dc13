"""Temporary folders that are found again when their process could not remove them.

Decides their names: host and process are in them, so that whoever starts next on the same host can
tell those of dead processes, and leaves everybody else's alone.
"""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
from contextlib import suppress
from pathlib import Path
from types import TracebackType

PREFIX = "ps-allreduce-"


def scratch_prefix() -> str:
    """The beginning of the names of this process's temporary folders."""
    return f"{PREFIX}{os.getpid()}-{socket.gethostname()}-"


class Scratch:
    """A folder of this process's own below another one; gone when the context is left."""

    def __init__(self, parent: Path) -> None:
        self._parent = parent

    def __enter__(self) -> Path:
        remove_left_overs(self._parent)
        self._path = Path(tempfile.mkdtemp(prefix=scratch_prefix(), dir=self._parent))
        return self._path

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        shutil.rmtree(self._path, ignore_errors=True)


def remove_left_overs(folder: Path) -> None:
    """Remove what killed processes left: ours, of this host, and of no living process."""
    for path in folder.glob(f"{PREFIX}*-{socket.gethostname()}-*"):
        owner = path.name.removeprefix(PREFIX).split("-")[0]
        with suppress(OSError):
            mine = path.stat().st_uid == os.getuid()
            if mine and owner.isdecimal() and not Path("/proc", owner).exists():
                shutil.rmtree(path, ignore_errors=True)
