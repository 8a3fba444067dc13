"""A process that is asked to end is interrupted once, whatever else arrives."""

from __future__ import annotations

import subprocess
import sys

ASKED_TWICE = """
import os, signal
from ps_allreduce.process import ENDING, end_as_interrupted

end_as_interrupted()
signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
for number in ENDING:
    os.kill(os.getpid(), number)
try:
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)
except KeyboardInterrupt:
    print("interrupted", flush=True)
os.kill(os.getpid(), signal.SIGTERM)
print("ends by itself", flush=True)
"""


def test_two_signals_at_once_interrupt_once_and_without_a_traceback() -> None:
    done = subprocess.run(
        [sys.executable, "-c", ASKED_TWICE], capture_output=True, text=True, timeout=30, check=True
    )
    assert (done.stdout, done.stderr) == ("interrupted\nends by itself\n", "")
