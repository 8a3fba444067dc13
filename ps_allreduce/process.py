"""This process: its standard descriptors, how it is asked to end, and how it ends while it imports.

Decides that the null device takes the place of descriptors 0, 1 and 2 where these are closed,
because programs and libraries expect them to be open, and that an error of output carries its name.

What was ignored when a program was started stays ignored: `nohup` means it.  A command line that is
asked to end before anything was started, as importing takes a second, says and leaves nothing.  Its
status is final when all is done, and a Python without the packages is told in a sentence.  This
module imports nothing that takes time, and the packages that hold a program import nothing beside
their programs.
"""

from __future__ import annotations

import ctypes
import io
import os
import signal
import sys
import types
from collections.abc import Callable
from contextlib import suppress
from typing import NoReturn

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


#: What asks a program that nobody types at to end.
ENDING = (signal.SIGTERM, signal.SIGHUP)


#: As `prctl` knows it.
_PR_SET_PDEATHSIG = 1


def signal_when_parent_ends(number: signal.Signals) -> None:
    """Have the kernel send this process a signal when the thread that started it ends."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, number)


def kill_group(pid: int) -> None:
    """Kill the process group that a child of this process leads; none is fine."""
    with suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)


def end_as_interrupted() -> None:
    """Being asked to end is a `KeyboardInterrupt`, as if somebody had typed it; once."""
    handle_ending(_interrupt)


def _interrupt(*_: object) -> None:
    # Slurm may ask twice, and systemd and a terminal that closes ask by two signals; the second one
    # would cut off what the first one set going.  Python complains of one that is there already
    # when it is ignored, so it is handled.
    handle_ending(lambda *_: None)
    raise KeyboardInterrupt


def handle_ending(handler: Callable[[int, object], object] | signal.Handlers) -> None:
    """Have a function called when this process is asked to end."""
    for number in ENDING:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, handler)


#: Exit status of what was asked to stop, and of a mistake of the user.
INTERRUPTED, MISTAKE = 130, 2

#: Holds the process number of the shell that a recipe of the Makefile runs in.
RECIPE = "PS_ALLREDUCE_RECIPE"

#: The packages of the suite: nothing in them is the user's own, nobody else may have the names, and
#: what is not imported of them is a defect of the suite.
SUITE_PACKAGES = ("ps_allreduce", "launchers", "experiments", "analysis")


def end_at_once() -> None:
    """End without a word when asked to, and with a sentence where a package is missing.

    Signals that are ignored stay ignored.
    """
    fill_standard_descriptors()
    name_outputs()
    sys.excepthook = _tell_what_is_missing
    for number in (signal.SIGINT, *ENDING):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _end)
    _end_with_recipe()


def _end_with_recipe() -> None:
    """Be asked to end when the shell of a recipe ends: who kills `make` kills nothing but that."""
    shell = os.environ.pop(RECIPE, "")
    if shell:
        signal_when_parent_ends(signal.SIGTERM)
        if str(os.getppid()) != shell:
            _end()


def end_in_order() -> None:
    """Everything is imported: an interruption is an exception from now on."""
    sys.excepthook = sys.__excepthook__
    if signal.getsignal(signal.SIGINT) is _end:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def end_with(status: int) -> NoReturn:
    """End with a status that no signal changes: Python takes some hundredths of a second for it."""
    for number in (signal.SIGINT, *ENDING):
        signal.signal(number, signal.SIG_IGN)
    sys.exit(status)


def _end(*_: object) -> None:
    os._exit(INTERRUPTED)


def _tell_what_is_missing(
    kind: type[BaseException], error: BaseException, trace: types.TracebackType | None
) -> None:
    if not isinstance(error, ImportError) or (error.name or "").split(".")[0] in SUITE_PACKAGES:
        sys.__excepthook__(kind, error, trace)
        return
    print(
        f"Error: {sys.executable} (Python {sys.version.split()[0]}) cannot run the suite: "
        f"{' '.join(str(error).split())[:200]}. `make setup` makes an environment that can, as "
        "README.md says; its Python is .venv/bin/python.",
        file=sys.stderr,
        flush=True,
    )
    os._exit(MISTAKE)
