"""Files of this machine: opened so that nobody waits for ever, and temporary ones.

Decides that a pipe, a device or a socket in the place of a file is refused, and how temporary
folders are called: the process, its machine and its view of processes are in their names, so that
whoever starts next on the same machine can tell those of dead processes, and leaves everybody
else's alone.  A launcher also makes folders on hosts where it does not run: copies of Python's
packages, which are used there as long as processes have them in their environment.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from ps_allreduce.errors import HostFault


def open_regular(path: Path) -> BinaryIO:
    """Open a file for reading, and nothing else: a pipe or a device might keep a reader for ever.

    Raises:
        OSError: there is no such file, or it is none that can be read to its end.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(f"{path.name} is no file but a folder, a pipe or a device")
    return os.fdopen(descriptor, "rb")


PREFIX = "ps-allreduce-"

#: Stands after the prefix in the name of a copy of packages.
COPY = "packages-"

#: Process, start of the machine, name space of processes, host; mkdtemp adds the last part.
NAME = re.compile(PREFIX + rf"({COPY})?(\d+)-([0-9a-f]{{8}}-\d+)-(.+)-[^-]+")


def scratch_prefix(kind: str = "") -> str:
    """The beginning of the names of this process's temporary folders."""
    return f"{PREFIX}{kind}{os.getpid()}-{_processes()}-{socket.gethostname()}-"


def _processes() -> str:
    """What tells this machine's processes from those of another one, or of its last start.

    An emulated host has another name than its machine, and the same processes.
    """
    boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii")
    return f"{boot[:8]}-{os.stat('/proc/self/ns/pid').st_ino}"


def without_scratch_names(text: str) -> str:
    """A text without the names of temporary folders, which are others every time."""
    return re.sub(rf"{PREFIX}[\w.-]+", f"{PREFIX}...", text)


def scratch_parent() -> Path:
    """Where this process may make temporary files.

    Raises:
        HostFault: nowhere, as on a disk that is full.
    """
    try:
        return Path(tempfile.gettempdir())
    except FileNotFoundError as error:
        raise HostFault(
            f"{error.strerror}: make room there, or set TMPDIR to a folder with room."
        ) from error


@contextmanager
def scratch_folder(parent: Path) -> Iterator[Path]:
    """A private folder below another one; gone when the context is left.

    Raises:
        HostFault: there is no room for it.
    """
    remove_left_overs(parent)
    try:
        path = Path(tempfile.mkdtemp(prefix=scratch_prefix(), dir=parent))
    except OSError as error:
        raise HostFault(f"no folder can be made in {parent} ({error.strerror}).") from error
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def remove_left_overs(folder: Path) -> None:
    """Remove what killed processes left: our own folders, no links, and of no living process."""
    for path in folder.glob(f"{PREFIX}*"):
        with suppress(OSError):
            found = path.lstat()
            ours = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid()
            if ours and _is_of_the_dead(path.name):
                shutil.rmtree(path, ignore_errors=True)


def _is_of_the_dead(name: str) -> bool:
    """The process that made such a folder is gone, if this machine tells."""
    parts = NAME.fullmatch(name)
    if parts is None:
        return False
    copy, owner, processes, host = parts.groups()
    if processes == _processes():
        return _has_ended(owner)
    if processes.split("-")[0] == _processes().split("-")[0]:
        return False  # of another container here
    started_again = host == socket.gethostname()
    return started_again or (copy is not None and not _is_in_an_environment(name))


def _is_in_an_environment(name: str) -> bool:
    """A process of this user here was started with the name in a variable, such as PYTHONPATH."""
    for environment in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):  # of somebody else, or gone
            if os.fsencode(name) in environment.read_bytes():
                return True
    return False


def _has_ended(pid: str) -> bool:
    """A process is gone, or nobody has asked for its status, as in containers without an init.

    Raises:
        OSError: this cannot be told.
    """
    try:
        stat = Path("/proc", pid, "stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return True
    return stat.rpartition(")")[2].split()[0] in ("Z", "X")
