"""Whether a folder could be made and written, before anything is.

Decides what can be known beforehand: names, links, and what stands in the way.  A disk that is full
is found when something is written.
"""

from __future__ import annotations

import os
from pathlib import Path

from ps_allreduce.errors import UserError
from ps_allreduce.record.files import RUNS


def check_writable(sweep_dir: Path) -> None:
    """Look whether a sweep could write, and write nothing.

    Raises:
        UserError: it could not.
    """
    for folder in (sweep_dir, sweep_dir / RUNS):
        check_folder(folder)


def check_folder(folder: Path) -> None:
    """Look whether a folder could be made and written, and write nothing.

    Raises:
        UserError: it could not.
    """
    nearest = _nearest(folder)
    if not nearest.is_dir():
        raise UserError(f"cannot write to {folder}: {nearest} is no folder.")
    if not os.access(nearest, os.W_OK | os.X_OK):
        raise UserError(f"cannot write to {folder}: {nearest} cannot be written.")


def _nearest(folder: Path) -> Path:
    """What there is already of a path: the path itself, or the nearest of its parents.

    Raises:
        UserError: the path can never be: a name is too long, or links lead nowhere.
    """
    for path in (folder, *folder.absolute().parents):
        try:
            path.lstat()
            path.stat()
            return path
        except (NotADirectoryError, PermissionError):
            pass  # the parent is what is wrong
        except FileNotFoundError as error:
            if path.is_symlink():
                raise UserError(
                    f"cannot write to {folder}: {path} is a link that leads nowhere."
                ) from error
        except OSError as error:
            raise UserError(f"cannot write to {folder}: {error.strerror}.") from error
    raise AssertionError("the root is always there")
