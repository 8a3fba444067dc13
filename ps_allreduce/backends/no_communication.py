"""Workers that never exchange anything: the upper bound of every strategy.

The step is the all-reduce step without the all-reduce; the strategy's cluster serves only to start
the timed loop together.
"""

from __future__ import annotations

from ps_allreduce.backends.mirrored import MirroredWorker


class NoCommunication(MirroredWorker):
    """Every worker applies its own gradients to its own copy."""
