"""Descriptors 0, 1 and 2, which programs and libraries expect to be open.

Decides that the null device takes the place of those that are closed, and that an error of output
carries its name, as those of files do.
"""

from __future__ import annotations

import io
import os
import sys

#: Names of output in errors, by the attribute of `sys`.
OUTPUTS = {"stdout": "standard output", "stderr": "standard error"}


def fill_standard_descriptors() -> None:
    """Open what is closed; else the next file or socket would get all that is printed."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # it gets the lowest number that is free
            os.set_inheritable(number, True)


class NamedOutput(io.FileIO):
    """A stream whose errors carry a name.

    Args:
        stream: where the output went so far.
    """

    def __init__(self, stream: io.TextIOWrapper, name: str) -> None:
        super().__init__(stream.fileno(), "w", closefd=False)
        self._title = name

    def write(self, content: object) -> int:
        """Write some of the content, and return how much of it."""
        try:
            return super().write(content)  # type: ignore[arg-type]
        except OSError as error:
            error.filename = self._title
            raise


def name_outputs() -> None:
    """Have errors of standard output and of standard error carry their names."""
    for attribute, name in OUTPUTS.items():
        stream = getattr(sys, attribute)
        if isinstance(stream, io.TextIOWrapper):
            raw = NamedOutput(stream, name)
            named = io.TextIOWrapper(
                raw if stream.write_through else io.BufferedWriter(raw),
                encoding=stream.encoding,
                errors=stream.errors,
                line_buffering=stream.line_buffering,
                write_through=stream.write_through,
            )
            setattr(sys, attribute, named)
