"""Parameter servers that are synchronous at first, and asynchronous from some step on.

Early gradients change quickly, and stale ones mislead most there (Li et al., "Sync-Switch: Hybrid
Parameter Synchronization for Distributed Deep Learning", ICDCS 2021).  Between both, every worker
waits for all others once.  Both may apply gradients by rules of their own: a mean bears a larger
learning rate than a single gradient.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import tensorflow as tf
from tensorflow.types.experimental import ConcreteFunction

from .asynchronous import AsynchronousExchange
from .buckets import Messages
from .served import ServedVariables
from .servers import ServerExchange
from .steps import Step
from .synchronous import SynchronousExchange


@dataclass(frozen=True, slots=True, kw_only=True)
class TracedTwice:
    """A step as either exchange makes it."""

    at_first: Sequence[ConcreteFunction]
    later: Mapping[int, ConcreteFunction]


class SwitchingExchange(ServerExchange):
    """Hands its steps to two exchanges of the same variables, one after the other.

    Workers hold their values under the same names in both: nothing is brought to them in between.
    """

    def __init__(
        self,
        served: ServedVariables,
        messages: Messages,
        num_workers: int,
        device: str,
        at_first: SynchronousExchange,
        later: AsynchronousExchange,
        synchronous_steps: int,
    ) -> None:
        """`synchronous_steps` are those of every worker."""
        super().__init__(served, messages, num_workers, device)
        self._at_first, self._later = at_first, later
        self._left = synchronous_steps

    def prepare(self) -> list[tf.Operation]:
        """As the first of both wants it."""
        return self._at_first.prepare()

    def trace(self, step: Step) -> TracedTwice:
        """Both before the first step, so that nothing is traced while steps are made."""
        return TracedTwice(at_first=self._at_first.trace(step), later=self._later.trace(step))

    def make(self, traced: TracedTwice, num_steps: int) -> list[tf.Tensor]:
        """Make steps, as many of them synchronously as are left."""
        at_first = min(num_steps, self._left)
        self._left -= at_first
        made = self._at_first.make(traced.at_first, at_first) if at_first else []
        if num_steps > at_first:
            made += self._later.make(traced.later, num_steps - at_first)
        return made
