"""Communication that runs while a worker still computes, from traced steps.

Decides what counts as hidden: the time before a worker's last gradient in which at least one
message is under way, from its gradient's being ready until its new value is back.  Without traced
steps nobody knows it.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from ps_allreduce.record.steps import EventKind, EventTable, Floats, Phase, StepTable


def hidden_seconds(steps: StepTable, events: EventTable) -> pd.Series:
    """Mean over the traced steps, by worker; empty without any."""
    traced = steps.select(steps.phase == Phase.EVENTS)
    if not len(traced) or not traced.batches.shape[1] or not len(events.time):
        return pd.Series(dtype=float)
    rows = [
        (worker, _hidden(_messages(events, worker, step), ready))
        for worker, step, ready in zip(
            traced.worker, traced.step, traced.batches[:, -1, 2], strict=True
        )
    ]
    return pd.DataFrame(rows, columns=["worker", "hidden_s"]).groupby("worker")["hidden_s"].mean()


def _messages(events: EventTable, worker: int, step: int) -> Floats:
    """When every message was ready to go, and when it was back [messages, 2]; by its readiness."""
    own = (events.worker == worker) & (events.step == step)
    ready = own & (events.kind == EventKind.GRADIENT_READY)
    back = own & (events.kind != EventKind.GRADIENT_READY)
    begin = pd.Series(events.time[ready], events.tensor[ready])
    end = pd.Series(events.time[back], events.tensor[back]).groupby(level=0).max()
    return np.asarray(pd.DataFrame({"begin": begin, "end": end}).dropna().sort_values("begin"))


def _hidden(messages: Floats, ready: float) -> float:
    """Length of the union of all times under way, up to a moment."""
    total, until = 0.0, -np.inf
    for begin, end in np.minimum(messages, ready):
        total += max(0.0, end - max(begin, until))
        until = max(until, end)
    return total
