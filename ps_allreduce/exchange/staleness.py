"""How far workers may run ahead of each other: stale-synchronous parallel.

Decides when a worker may begin (Ho et al., "More Effective Distributed ML via a Stale Synchronous
Parallel Parameter Server", NIPS 2013).  A worker's clock counts the steps that it has ended.  With
a bound s, a worker at clock c may begin its next step only if no clock is below c - s.  It then
computes with all gradients of all workers' first c - s steps, perhaps with more.  Who makes the
steps, and how, is decided elsewhere.
"""

from __future__ import annotations

from threading import Condition


class StalenessClock:
    """The clocks of all workers, from 0; every worker is driven by a thread of its own."""

    def __init__(self, num_workers: int, bound: int) -> None:
        """`bound` is in steps, 1 or more."""
        self._clocks = [0] * num_workers
        self._bound = bound
        self._abandoned = False
        self._changed = Condition()

    def begin(self, worker: int, num_steps: int) -> bool:
        """Wait until the worker may begin its next `num_steps` steps, the last of them included.

        The slowest worker may always begin if `num_steps` is not above the bound.  Others get ahead
        of it by whole dispatches; for one dispatch, the bound must be at least 2 x `num_steps` - 1.

        Returns:
            False if the others were abandoned: nothing more is to begin.
        """
        last = self._clocks[worker] + num_steps - 1
        with self._changed:
            self._changed.wait_for(
                lambda: self._abandoned or min(self._clocks) >= last - self._bound
            )
            return not self._abandoned

    def end(self, worker: int, num_steps: int) -> None:
        """Note that the worker has ended `num_steps` more steps."""
        with self._changed:
            self._clocks[worker] += num_steps
            self._changed.notify_all()

    def abandon(self) -> None:
        """Let no worker begin or wait any more, because one has failed."""
        with self._changed:
            self._abandoned = True
            self._changed.notify_all()
