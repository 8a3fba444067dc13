"""How the suite's programs are asked to end.

Decides that what was ignored when a program was started stays ignored: `nohup` means it.
"""

from __future__ import annotations

import ctypes
import signal
from collections.abc import Callable

#: What asks a program that nobody types at to end.
ENDING = (signal.SIGTERM, signal.SIGHUP)


#: As `prctl` knows it.
_PR_SET_PDEATHSIG = 1


def signal_when_parent_ends(number: signal.Signals) -> None:
    """Have the kernel send this process a signal when the thread that started it ends."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, number)


def end_as_interrupted() -> None:
    """Being asked to end is a `KeyboardInterrupt`, as if somebody had typed it; once."""
    handle_ending(_interrupt)


def _interrupt(number: int, _: object) -> None:
    # Slurm may ask twice; the second time would cut off what the first one set going.
    signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt


def handle_ending(handler: Callable[[int, object], object]) -> None:
    """Have a function called when this process is asked to end."""
    for number in ENDING:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, handler)
