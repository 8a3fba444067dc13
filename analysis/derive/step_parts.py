"""Where the time of steps goes, worker by worker; the parts of a step add up to it exactly.

Decides what the parts are.  A worker's step lasts from the end of its previous step to its own end:

- dispatch: until the step begins on the worker.
- input: waiting for a batch although the values are there.
- compute: forward and backward passes (`ps_allreduce.record.step_table`).
- waiting for others: from the worker's last gradient until the last gradient of the slowest worker.
  Only where workers meet in every step.
- exchange and update: everything else.  Values that are fetched before the step are in it, and of
  one worker alone it is the update.  The two cannot be told apart without traced steps.

A step that reaches over an end of the window counts by its part inside, as it does for the rate
(`ps_allreduce.record.step_table.compute_metrics`), so the mean step is that of the rate.

Of traced steps also: how long they took, and how much communication was hidden, which runs while a
worker still computes.  Without traced steps nobody knows it.

What the same computation would take alone, and why an exchange takes so long, is not decided here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pandas as pd

from ps_allreduce.point.experiment import Experiment
from ps_allreduce.record.step_table import (
    EventKind,
    EventTable,
    Floats,
    Integers,
    Phase,
    StepTable,
    Window,
    compute_spans,
    concatenate,
    input_spans,
    measurement_window,
)
from ps_allreduce.serialization import Columns

#: Which steps: one truth for each row.
Mask = np.ndarray[tuple[int], np.dtype[np.bool_]]

#: The parts that add up to a step.
PARTS = ("dispatch_s", "input_s", "compute_s", "waiting_s", "exchange_s")


@dataclass(frozen=True, slots=True, kw_only=True)
class StepParts:
    """The steps that have a part inside the window, by worker and step; n rows.

    All but `inside`, `step_s` and `dispatch_s` is not a number where nobody sees into a step.

    Attributes:
        inside: share of the step inside the window, above 0; means are weighted with it.
        before: end of the worker's previous step, on the clock of the timings; `step_s` begins it.
        begun: when the worker had its values, rows of tables too, on that clock.
        stated_s: what an emulated accelerator was asked to take; not a number without one.
        last: the worker's last gradient was the last of all workers.
        meets: all workers meet in every step, so the slowest one decides.
    """

    meets: bool
    worker: Integers
    step: Integers
    inside: Floats
    before: Floats
    begun: Floats
    step_s: Floats
    dispatch_s: Floats
    input_s: Floats
    compute_s: Floats
    waiting_s: Floats
    exchange_s: Floats
    stated_s: Floats
    last: Mask

    def by_worker(self) -> pd.DataFrame:
        """Mean seconds of every worker's steps, by worker."""
        names = ("step_s", *PARTS, "stated_s")
        means = {name: self.worker_means(name) for name in names}
        return pd.DataFrame(means, index=pd.Index(np.unique(self.worker), name="worker"))

    def worker_means(self, name: str) -> Floats:
        """Mean of a part over the steps of each worker [workers]."""
        values, workers = getattr(self, name), np.unique(self.worker)
        return np.array([self.mean(values, self.worker == each) for each in workers])

    def mean(self, values: Floats, rows: Mask | None = None) -> float:
        """Mean of a value of each step, of all steps or those of some rows."""
        chosen = slice(None) if rows is None else rows
        return float(np.average(values[chosen], weights=self.inside[chosen]))

    def columns(self) -> dict[str, object]:
        """Means over all steps, as columns of a table; None for what is unknown."""
        columns: dict[str, float] = {
            "mean_step_s": self.mean(self.step_s),
            "dispatch_s": self.mean(self.dispatch_s),
            "input_wait_s": self.mean(self.input_s),
            "compute_s": self.mean(self.compute_s),
            "communication_s": self.mean(self.step_s - self.input_s - self.compute_s),
            "waiting_s": self.mean(self.waiting_s),
            "exchange_s": self.mean(self.exchange_s),
            "stated_compute_s": self.mean(self.stated_s),
        }
        computed = self.worker_means("compute_s")
        if not np.isnan(computed).any():
            every = np.unique(self.worker)
            fastest, slowest = int(computed.argmin()), int(computed.argmax())
            stated = self.worker_means("stated_s")
            alone = computed if np.isnan(stated).any() else stated
            steps = np.array([self.inside[self.worker == each].sum() for each in every])
            decides = alone.max() if self.meets else np.average(alone, weights=steps)
            columns |= {
                "last_input_s": self.mean(self.input_s, self.last),
                "fastest_compute_s": computed[fastest],
                "fastest_stated_s": stated[fastest],
                "slow_worker_s": decides - alone.min(),
                "slowest_worker": int(every[slowest]),
                "late_start_s": self._late_start_s(),
            }
        return {name: None if math.isnan(value) else value for name, value in columns.items()}

    def _late_start_s(self) -> float:
        """How much later than the mean worker the one begins whose gradients come last.

        By means over the steps that all have.  Its values come late, by a slow link for example;
        others wait for it, as they do for a worker that computes longer.
        """
        if not self.meets or not (rows := _common_rows(self)).size:
            return 0.0
        begins = self.begun[rows].mean(axis=1)
        ready = begins + (self.input_s + self.compute_s)[rows].mean(axis=1)
        return max(0.0, float(begins[ready.argmax()] - begins.mean()))


def parts_of(experiment: Experiment, steps: StepTable) -> StepParts:
    """The parts of the steps that have a part inside the window.

    Raises:
        ValueError: there is no window in which all workers were measured.
    """
    window, tables = measurement_window(steps), steps.by_worker()
    every = concatenate(tables)
    before = np.concatenate([[np.nan, *table.end[:-1]] for table in tables])
    step_s, whole = every.end - before, (before >= window.start) & (every.end <= window.end)
    seen_s = np.minimum(every.end, window.end) - np.maximum(before, window.start)
    # A step that took no time, by a clock that was set, counts as a whole one.
    inside = np.divide(np.maximum(seen_s, 0.0), step_s, out=1.0 * whole, where=step_s > 0.0)
    ready = every.batches[:, -1, 2] if every.batches.shape[1] else np.full(len(every), np.nan)
    slowest = _slowest(experiment, every.step, ready)
    # Clocks are read beside the computation, so an end may be noted a little early.
    waiting = np.minimum(slowest - ready, np.maximum(every.end - ready, 0.0))
    parts = {
        "dispatch_s": every.start - before,
        "input_s": input_spans(every),
        "compute_s": compute_spans(every),
        "waiting_s": waiting,
    }
    columns = {
        "worker": every.worker,
        "step": every.step,
        "inside": inside,
        "before": before,
        "begun": ready - parts["input_s"] - parts["compute_s"],
        "step_s": step_s,
        **parts,
        "exchange_s": step_s - sum(parts.values()),
        "stated_s": _stated(experiment, every),
        "last": ready == slowest,
    }
    chosen = {name: values[inside > 0.0] for name, values in columns.items()}
    return StepParts(meets=meets_in_every_step(experiment), **chosen)


def _slowest(experiment: Experiment, step: Integers, ready: Floats) -> Floats:
    """When the last worker's last gradient of each step was ready, where workers meet in it."""
    if not meets_in_every_step(experiment) or np.isnan(ready).all():
        return ready
    numbers, number = np.unique(step, return_inverse=True)
    latest = np.full(len(numbers), -np.inf)
    np.maximum.at(latest, number, ready)
    return np.asarray(latest[number])


def meets_in_every_step(experiment: Experiment) -> bool:
    """No worker goes on before all have sent the gradients of a step."""
    strategy = experiment.strategy
    return strategy.synchronous and strategy.communicates() and experiment.num_workers > 1


def _stated(experiment: Experiment, steps: StepTable) -> Floats:
    """What an emulated accelerator was asked to take for every step."""
    load, stated = experiment.of_each, np.full(len(steps), np.nan)
    if load.emulated is None:
        return stated
    each_s = (load.emulated.forward_s + load.emulated.backward_s) * load.accumulation
    for worker in np.unique(steps.worker):
        rows = steps.worker == worker
        stated[rows] = each_s * load.emulated.scales(int(worker), steps.step[rows])
    return stated


def pop_of(parts: StepParts, window: Window) -> PopMetrics | None:
    """The POP metrics of a run; None where nobody sees into its steps.

    Where workers meet in every step, the steps count that all have in the window.  Elsewhere every
    worker's share of useful time is that of its steps, and all have the length of the window.
    """
    if not len(parts.step) or np.isnan(parts.compute_s).any():
        return None
    if not parts.meets:
        shares = [parts.worker_means(name) for name in ("compute_s", "input_s", "step_s")]
        useful, waits = (each / shares[-1] * window.length_s for each in shares[:2])
        return pop_metrics(useful[:, np.newaxis], waits[:, np.newaxis], window.length_s)
    rows = _common_rows(parts)
    if not rows.size:
        return None
    begins, ends = parts.before[rows], parts.before[rows] + parts.step_s[rows]
    length_s = float(ends.max() - begins.min())
    return pop_metrics(parts.compute_s[rows], parts.input_s[rows], length_s)


def _common_rows(parts: StepParts) -> Integers:
    """Rows of the steps that all workers have in the window [workers, steps]."""
    workers = np.unique(parts.worker)
    numbers, counts = np.unique(parts.step, return_counts=True)
    common = np.isin(parts.step, numbers[counts == len(workers)])
    return np.flatnonzero(common).reshape(len(workers), -1)


def traced_step_s(steps: StepTable) -> float | None:
    """Median over the traced steps of all workers, from the end of a step to that of the next.

    A worker's first traced step follows a pause, so its length is not known.  None where no worker
    has two of them.
    """
    traced = steps.select(steps.phase == Phase.EVENTS)
    lengths = [np.diff(table.end) for table in traced.by_worker()]
    found = np.concatenate([np.empty(0), *lengths])
    return float(np.median(found)) if len(found) else None


def hidden_seconds(steps: StepTable, events: EventTable) -> pd.Series:
    """Mean over the traced steps, by worker; empty without any.

    Hidden is the time before a worker's last gradient in which at least one message is under way,
    from its gradient's being ready until its new value is back.
    """
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


@dataclass(frozen=True, slots=True, kw_only=True)
class PopMetrics(Columns):
    """Shares of the time of all workers, 0 to 1."""

    load_balance: float
    serialisation: float
    transfer: float


def pop_metrics(useful_s: Floats, waits_s: Floats, length_s: float) -> PopMetrics | None:
    """The metrics of some workers; None where nothing useful was done.

    Args:
        useful_s: seconds of computation [workers, stretches]; all workers meet at the end of each
            stretch, and only there.
        waits_s: seconds of waiting for input, of the same shape.
        length_s: time in which all stretches were made.  Clocks of hosts differ by fractions of a
            millisecond, so it counts as no shorter than T_ideal.
    """
    each = useful_s.sum(axis=1)
    if not each.max() > 0.0:
        return None
    ideal_s = float((useful_s + waits_s).max(axis=0).sum())
    return PopMetrics(
        load_balance=float(each.mean() / each.max()),
        serialisation=float(each.max() / ideal_s),
        transfer=ideal_s / max(length_s, ideal_s),
    )
