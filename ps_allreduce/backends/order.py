"""Which operations TensorFlow may not put in order while it traces a step.

TensorFlow chains all stateful operations that use no resource, in the order in which they are
created (`AutomaticControlDependencies`, `None in last_write_to_resource`).  A clock that is read
for one tensor would so wait for everything that was created before, and a collective for the clock
before it: timestamps would gate, and nothing would overlap.  Their data and control inputs order
these operations as far as they need it.
"""

from __future__ import annotations

from tensorflow.python.framework import auto_control_deps

UNORDERED = frozenset({"Timestamp", "CollectiveReduceV2"}) | frozenset(
    {"VarHandleOp", "IteratorV2", "FIFOQueueV2"}  # handles of what a worker finds by name
)


def leave_unordered() -> None:
    """Make it so for everything that this process traces from now on."""
    auto_control_deps.ASYNC_STATEFUL_OPS |= UNORDERED
