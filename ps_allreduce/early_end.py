"""How a command line ends that is still importing, which takes a second, or that has done its work.

Decides that nothing is said or left when it is asked to end before anything was started,
that its status is final when all is done, and that a Python without the packages is told in a
sentence.  It imports nothing that takes time, and the packages that hold a program import nothing
beside their programs.
"""

from __future__ import annotations

import os
import signal
import sys
import types
from typing import NoReturn

from ps_allreduce.descriptors import fill_standard_descriptors, name_outputs
from ps_allreduce.signals import ENDING, signal_when_parent_ends

#: Exit status of what was asked to stop, and of a mistake of the user.
INTERRUPTED, MISTAKE = 130, 2

#: Holds the process number of the shell that a recipe of the Makefile runs in.
RECIPE = "PS_ALLREDUCE_RECIPE"

#: What is not imported because of a defect of the suite.
OWN = ("ps_allreduce", "launchers", "experiments", "analysis")


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
    if not isinstance(error, ImportError) or (error.name or "").split(".")[0] in OWN:
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
