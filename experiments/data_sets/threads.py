"""Work that is done by several threads, and ends with the first that fails.

Decides how many threads there are, and that an interruption ends them all at their next look.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from threading import Event, Lock
from typing import TypeVar

from experiments.data_sets.listing import Report
from ps_allreduce.kernel_files import usable_cores

T = TypeVar("T")
R = TypeVar("R")

#: So seldom a bar is told: drawing it takes time from the threads.
_TELL_EVERY = 64


class Stopped(Exception):
    """Another thread has failed, or somebody has interrupted."""


class Tally:
    """Counts what threads have done, tells a bar, and ends them when they are to stop."""

    def __init__(self, report: Report, total: int, done: int = 0) -> None:
        self._report, self._total, self._done = report, total, done
        self._lock, self._stop = Lock(), Event()
        report(done, total)

    def add(self, count: int = 1) -> None:
        """So many more are done.

        Raises:
            Stopped: this thread is to end.
        """
        if self._stop.is_set():
            raise Stopped
        with self._lock:
            before, self._done = self._done, self._done + count
            done = self._done
        if done // _TELL_EVERY > before // _TELL_EVERY or done == self._total:
            self._report(done, self._total)

    def stop(self) -> None:
        """End all threads that count here."""
        self._stop.set()


def in_threads(work: Callable[[T], R], items: Sequence[T], tally: Tally) -> list[R]:
    """Do the same with all items, in as many threads as there are usable cores.

    Returns:
        Results in the order of the items.

    Raises:
        Exception: that of the first item that fails, once all threads have ended.
    """
    with ThreadPoolExecutor(len(usable_cores())) as pool:
        futures = [pool.submit(work, item) for item in items]
        try:
            for future in as_completed(futures):
                future.result()
        except BaseException:
            tally.stop()
            pool.shutdown(cancel_futures=True)
            raise
        return [future.result() for future in futures]
