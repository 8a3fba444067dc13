"""Where the time of steps goes, worker by worker; the parts of a step add up to it exactly.

Decides what the parts are.  A worker's step lasts from the end of its previous step to its own end:

- dispatch: until the step begins on the worker.
- input: waiting for a batch although the values are there.
- compute: forward and backward passes (`ps_allreduce.record.steps`).
- waiting for others: from the worker's last gradient until the last gradient of the slowest worker.
  Only where workers meet in every step.
- exchange and update: everything else.  Values that are fetched before the step are in it, and of
  one worker alone it is the update.  The two cannot be told apart without traced steps.

What the same computation would take alone, and why an exchange takes so long, is not decided here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields

import numpy as np
import pandas as pd

from analysis.derive.pop import PopMetrics, pop_metrics
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.record.steps import (
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

#: The parts that add up to a step.
PARTS = ("dispatch_s", "input_s", "compute_s", "waiting_s", "exchange_s")


@dataclass(frozen=True, slots=True, kw_only=True)
class StepParts:
    """The whole steps inside the window, by worker and step; n rows.

    All but `step_s` and `dispatch_s` is not a number where nobody sees into a step.

    Attributes:
        before: end of the worker's previous step, on the clock of the timings; `step_s` begins it.
        stated_s: what an emulated accelerator was asked to take; not a number without one.
        last: the worker's last gradient was the last of all workers.
        meets: all workers meet in every step, so the slowest one decides.
    """

    meets: bool
    worker: Integers
    step: Integers
    before: Floats
    step_s: Floats
    dispatch_s: Floats
    input_s: Floats
    compute_s: Floats
    waiting_s: Floats
    exchange_s: Floats
    stated_s: Floats
    last: np.ndarray[tuple[int], np.dtype[np.bool_]]

    def table(self) -> pd.DataFrame:
        """A row for each step."""
        names = [each.name for each in fields(self) if each.name != "meets"]
        return pd.DataFrame({name: getattr(self, name) for name in names})

    def by_worker(self) -> pd.DataFrame:
        """Mean seconds of every worker's steps, by worker."""
        return self.table().groupby("worker")[["step_s", *PARTS, "stated_s"]].mean()

    def columns(self) -> dict[str, object]:
        """Means over all steps, as columns of a table; None for what is unknown."""
        means, last = self.table().mean(), self.table()[self.last]
        workers = self.by_worker()
        columns = {
            "mean_step_s": means["step_s"],
            **{name: means[name] for name in ("dispatch_s", "waiting_s", "exchange_s")},
            "stated_compute_s": means["stated_s"],
            "last_input_s": last["input_s"].mean(),
        }
        if workers["compute_s"].notna().all():
            fastest = workers.loc[workers["compute_s"].idxmin()]
            decides = workers["compute_s"].max() if self.meets else means["compute_s"]
            columns |= {"fastest_compute_s": fastest["compute_s"]}
            columns |= {"fastest_stated_s": fastest["stated_s"]}
            columns |= {"slow_worker_s": decides - fastest["compute_s"]}
            columns |= {"slowest_worker": int(workers["compute_s"].idxmax())}
        return {name: None if math.isnan(value) else value for name, value in columns.items()}


def parts_of(experiment: Experiment, steps: StepTable) -> StepParts:
    """The parts of the steps inside the window.

    Raises:
        ValueError: there is no window in which all workers were measured.
    """
    window, tables = measurement_window(steps), steps.by_worker()
    every = concatenate(tables)
    before = np.concatenate([[np.nan, *table.end[:-1]] for table in tables])
    inside = (before >= window.start) & (every.end <= window.end)
    inside &= every.phase == Phase.MEASURED
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
        "before": before,
        "step_s": every.end - before,
        **parts,
        "exchange_s": every.end - before - sum(parts.values()),
        "stated_s": _stated(experiment, every),
        "last": ready == slowest,
    }
    chosen = {name: values[inside] for name, values in columns.items()}
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
    load, stated = experiment.workload, np.full(len(steps), np.nan)
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
    worker's share of useful time is that of its whole steps, and all have the length of the window.
    """
    table = parts.table()
    if table["compute_s"].isna().any() or table.empty:
        return None
    if not parts.meets:
        sums = table.groupby("worker")[["compute_s", "input_s", "step_s"]].sum()
        shares = sums[["compute_s", "input_s"]].div(sums["step_s"], axis="index").to_numpy()
        useful, waits = np.hsplit(shares * window.length_s, 2)
        return pop_metrics(useful, waits, window.length_s)
    matrices = _common_steps(table)
    if matrices["step_s"].shape[1] == 0:
        return None
    begins, lengths = matrices["before"], matrices["step_s"]
    length_s = float((begins + lengths).max() - begins.min())
    return pop_metrics(matrices["compute_s"], matrices["input_s"], length_s)


def _common_steps(table: pd.DataFrame) -> Mapping[str, Floats]:
    """Columns as [workers, steps], of the steps that all workers have in the window."""
    wide = table.pivot(index="worker", columns="step").drop(columns="last", level=0).astype(float)
    return {
        name: wide[name].dropna(axis="columns").to_numpy()
        for name in ("compute_s", "input_s", "before", "step_s")
    }
