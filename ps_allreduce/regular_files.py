"""Files that somebody names or leaves, opened so that nobody waits for ever.

Decides that a pipe, a device or a socket in the place of a file is refused.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import BinaryIO


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
