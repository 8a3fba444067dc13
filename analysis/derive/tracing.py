"""How long traced steps took.

Decides which of them count: a worker's first traced step follows a pause, so that its length is
not known.
"""

from __future__ import annotations

import numpy as np

from ps_allreduce.record.steps import Phase, StepTable


def traced_step_s(steps: StepTable) -> float | None:
    """Median over the traced steps of all workers, from the end of a step to that of the next.

    None where no worker has two of them.
    """
    traced = steps.select(steps.phase == Phase.EVENTS)
    lengths = [np.diff(table.end) for table in traced.by_worker()]
    found = np.concatenate([np.empty(0), *lengths])
    return float(np.median(found)) if len(found) else None
