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


def at_least(minimum: float, **values: float) -> None:
    """Refuse numbers below a minimum, by their names."""
    for name, value in values.items():
        if not value >= minimum:  # "not a number" is below everything
            raise UserError(f"{name} must be at least {minimum:g}, got {value:g}.")


def at_most(maximum: float, **values: float) -> None:
    """Refuse numbers above a maximum, by their names."""
    for name, value in values.items():
        if value > maximum:
            raise UserError(f"{name} must be at most {maximum:g}, got {value:g}.")
