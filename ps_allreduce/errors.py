"""What can go wrong, as one hierarchy.

Decides which failures are reported in one sentence and with which exit status.  Everything that is
not a `SuiteError` is a defect of the suite and keeps its traceback.
"""

from __future__ import annotations

import errno
import os

from ps_allreduce.process import OUTPUTS

#: What the system says when it, and not the program, is short of something; of disk space first.
FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS})
SHORTAGES = FULL | {errno.EMFILE, errno.ENFILE}


class SuiteError(Exception):
    """A failure that the suite understands; its text says what, where and what to do."""


class UserError(SuiteError):
    """The request cannot be met as it stands (exit status 2)."""


class RecordFormatError(UserError):
    """A results file is damaged, or written by another version of the suite."""


class OtherVersionError(RecordFormatError):
    """A results file is whole, and of another version of the format."""


class LaunchError(SuiteError):
    """The tasks of a run could not be started, or one of them ended before its time."""


class TookTooLong(LaunchError):
    """A job was ended because it had taken longer than it may."""


class HostFault(LaunchError):
    """A host, or what connects hosts, was at fault and not the run: it may work the next time.

    A fork server that does not come up, is lost or silent; no room for temporary files; no file
    handles; an emulated network that is gone.
    """


class InputDataError(SuiteError):
    """Training data is missing, truncated or damaged."""


def in_a_sentence(error: OSError) -> HostFault:
    """What the system refuses, without names of files, which are others every time."""
    what = error.strerror or str(error)
    if error.filename in OUTPUTS.values():
        return HostFault(f"{error.filename} cannot be written ({what}).")
    if error.errno in FULL:
        what += f" (temporary files are in {os.environ.get('TMPDIR') or '/tmp'})"
    return HostFault(f"this host refuses the launcher something: {what}.")


def at_least(minimum: float, **values: float) -> None:
    """Refuse numbers below a minimum, by their names."""
    for name, value in values.items():
        if not value >= minimum:  # "not a number" is below everything
            raise UserError(f"{name} must be at least {minimum:g}, got {value:g}.")


def whole(**values: float) -> None:
    """Refuse what counts things and is no whole number, by its name; `1e5` is none in Python."""
    for name, value in values.items():
        if not isinstance(value, int):
            raise UserError(f"{name} must be a whole number without a point, got {value!r}.")


def at_most(maximum: float, **values: float) -> None:
    """Refuse numbers above a maximum, by their names."""
    for name, value in values.items():
        if value > maximum:
            raise UserError(f"{name} must be at most {maximum:g}, got {value:g}.")
