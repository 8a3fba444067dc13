"""How a command line ends that is asked to while it is still importing, which takes a second.

Decides that nothing is said and nothing is left: nothing was started yet.  It imports nothing that
takes time.
"""

from __future__ import annotations

import os
import signal

#: Exit status of what was asked to stop.
INTERRUPTED = 130

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def end_at_once() -> None:
    """End without a word when asked to; what is ignored stays ignored."""
    for number in ENDING:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _end)


def end_in_order() -> None:
    """Everything is imported: an interruption is an exception from now on."""
    if signal.getsignal(signal.SIGINT) is _end:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _end(*_: object) -> None:
    os._exit(INTERRUPTED)
