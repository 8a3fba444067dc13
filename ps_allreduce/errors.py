"""What can go wrong, as one hierarchy.

Decides which failures are reported in one sentence and with which exit status.  Everything that is
not a `SuiteError` is a defect of the suite and keeps its traceback.
"""

from __future__ import annotations


class SuiteError(Exception):
    """A failure that the suite understands; its text says what, where and what to do."""


class UserError(SuiteError):
    """The request cannot be met as it stands (exit status 2)."""


class RecordFormatError(UserError):
    """A results file is damaged, or written by another version of the suite."""


class LaunchError(SuiteError):
    """The tasks of a run could not be started, or one of them ended before its time."""


class InputDataError(SuiteError):
    """Training data is missing, truncated or damaged."""
