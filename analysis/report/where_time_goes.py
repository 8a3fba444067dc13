"""Where the time of a step goes: tables of parts, POP metrics and single tasks; trends of steps.

Decides columns and rounding; tracing changes what it looks at, so its price stands beside every
trace.  Of the tasks of a run the raw timings and samples are read here, which the table of runs
does not keep.  What the parts are is decided in `derive.step_parts` and
`stats.explained_parts`, the metrics in `derive.step_parts`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import compress
from pathlib import Path

import numpy as np
import pandas as pd

from analysis.data.cases import Case, Point
from analysis.derive.costs import task_seconds
from analysis.derive.fastest_step import step_time_s
from analysis.derive.steadiness import Steadiness
from analysis.derive.step_parts import PARTS, hidden_seconds, parts_of
from analysis.stats.causes import alone_s, mean_parts
from analysis.stats.explained_parts import stalled_shares
from analysis.stats.points import point_name
from analysis.stats.statistics import mean_of
from analysis.wording import (
    NONE,
    count_text,
    number,
    points_text,
    ratio,
    three_digits,
    with_interval,
)
from ps_allreduce.cluster import TaskId, TaskType
from ps_allreduce.errors import RecordFormatError
from ps_allreduce.record.files import RunFiles, load_raw
from ps_allreduce.record.records import RunRecord
from ps_allreduce.record.step_table import measurement_window

#: Columns of numbers; not a number where something is unknown or a task has no such thing.
COLUMNS = ("step_s", *PARTS, "hidden_s", "cpu_s", "num_bytes")


def read_tasks(record: RunRecord, path: Path) -> pd.DataFrame:
    """A row for each worker and server of a run; none where its raw timings cannot be read.

    Columns: task (its name), step_s and the parts of a worker's mean step; hidden_s, communication
    beside compute in traced steps; cpu_s, processor seconds in a step of all workers; num_bytes of
    trainable variables on a server.

    Args:
        path: of the record.
    """
    try:
        steps, events = load_raw(RunFiles(path).raw)
        window = measurement_window(steps)
    except (RecordFormatError, ValueError):
        return pd.DataFrame()
    workers = parts_of(record.experiment, steps).by_worker()
    workers["hidden_s"] = hidden_seconds(steps, events)
    workers.index = pd.Index([str(TaskId(TaskType.WORKER, int(n))) for n in workers.index])
    tasks = pd.concat([workers, _servers(record)]).rename_axis("task")
    cpu = task_seconds(record, window, step_time_s(record) or np.nan)
    tasks["cpu_s"] = tasks.index.map(cpu).astype(float)
    return tasks.reindex(columns=list(COLUMNS)).reset_index()


def _servers(record: RunRecord) -> pd.DataFrame:
    loads = record.placement.bytes_per_server if record.placement else ()
    names = [str(TaskId(TaskType.PS, index)) for index in range(len(loads))]
    return pd.DataFrame({"num_bytes": np.asarray(loads, dtype=float)}, index=pd.Index(names))


#: Opens the traces.
VIEWER = "ui.perfetto.dev"


def parts_table(case: Case) -> pd.DataFrame:
    """A row for each point whose raw timings were read: the parts of its mean step, ms."""
    rows = [_parts_row(case, point) for point in case.points if len(point.measured)]
    return pd.DataFrame(rows)


def parts_note(case: Case, parts: pd.DataFrame) -> str:
    """What is to be said of the columns that the table of parts has values in."""
    alone = "the same work takes in strategy single (there the mean, elsewhere the median)"
    if case.emulated:
        alone = "the emulated accelerator was asked for"
    known = _known(parts)
    divided = f"Compute alone is at most what {alone}."
    undivided = "Compute is not divided: what it takes alone is not known."
    notes = {
        "compute alone ms": divided if "slower compute ms" in known else undivided,
        "waiting for others ms": (
            "Waiting for others ends when the slowest worker's last gradient is ready."
        ),
        "exchange and update ms": (
            "Exchange and update cannot be told apart without traced steps."
        ),
        "hidden at least ms": (
            "Hidden communication runs beside compute: at least the time that the busiest link "
            "needs, less all parts but compute, and in no launch less than 0. It is known of "
            "synchronous workers only, and not where that time is longer than the step."
        ),
        "processor, worker ms": (
            "Processor time is that of one task in a step of all workers, from samples."
        ),
    }
    means = "Means over steps, workers and n launches; the parts of a row add up to its mean step."
    return " ".join([means, *(notes[name] for name in known if name in notes)])


def _known(table: pd.DataFrame) -> list[str]:
    """The columns that have values."""
    return [str(name) for name in table if (table[name] != NONE).any()]


def _parts_row(case: Case, point: Point) -> dict[str, str]:
    launches = point.measured
    beside = launches["network_s"] - (launches["mean_step_s"] - launches["compute_s"])
    # No link needs longer than the step: such a rate was not that of the run.
    possible = beside.where(launches["network_s"] <= launches["mean_step_s"])
    hidden = possible.astype(float).clip(lower=0.0).mean()
    beyond = {
        # Where workers do not meet, what a link carries beside one's compute may be another's.
        "hidden at least ms": hidden if point.setting.traits.synchronous else math.nan,
        "processor, worker ms": launches["worker_cpu_s"].astype(float).mean(),
        "processor, server ms": launches["server_cpu_s"].astype(float).mean(),
    }
    step = mean_of(launches["mean_step_s"].astype(float)).ends
    row = {"n": str(len(launches)), "mean step ms [95 %]": with_interval(ms_text, *step)}
    row |= {f"{part} ms": ms_text(value) for part, value in mean_parts(case, point).items()}
    return _named(point) | row | {name: ms_text(value) for name, value in beyond.items()}


def _named(point: Point) -> dict[str, str]:
    return {"setting": point.setting.label, "workers": str(point.num_workers)}


def ms_text(seconds: float | None) -> str:
    """Milliseconds; a dash where they are not known."""
    return NONE if seconds is None or math.isnan(seconds) else f"{seconds * 1e3:.2f}"


def pop_table(case: Case) -> pd.DataFrame:
    """A row for each point into whose steps somebody sees: POP metrics, means over launches."""
    points = [point for point in case.points if not point.known("load_balance").empty]
    return pd.DataFrame([_pop_row(case, point) for point in points])


def pop_note(case: Case, metrics: pd.DataFrame) -> str:
    """What the metrics are."""
    told = [
        "Shares of the workers' time (POP, co-design.pop-coe.eu/metrics). Parallel efficiency is "
        "load balance x communication efficiency. Communication efficiency is serialisation x "
        "transfer; it stands where gradients are sent."
    ]
    if any(not point.setting.traits.synchronous for point in case.points):
        told.append("Of asynchronous workers nothing but input makes serialisation less than 1.")
    if "parallel, per machine paid for" in metrics:
        told.append("Per machine paid for: free places for workers on the hosts count as idle.")
    if "computation scaling" in _known(metrics):
        told.append(
            "Computation scaling: how long a worker computes for an example in strategy single, "
            "over how long it does here."
        )
    return " ".join(told)


def _pop_row(case: Case, point: Point) -> dict[str, str]:
    names = ["load_balance", "serialisation", "transfer"]
    shares = point.launches[names].astype(float).dropna()
    communication = shares["serialisation"] * shares["transfer"]
    parallel = shares["load_balance"] * communication
    of_communication = {
        "communication efficiency": communication.mean(),
        "serialisation": shares["serialisation"].mean(),
        "transfer": shares["transfer"].mean(),
    }
    if not point.sends:
        of_communication = dict.fromkeys(of_communication, math.nan)
    values = {
        "parallel efficiency": parallel.mean(),
        "load balance": shares["load_balance"].mean(),
        **of_communication,
        "computation scaling": _scaling(case, point),
        "parallel, per machine paid for": parallel.mean() * point.num_workers / _paid_for(point),
    }
    row = {name: ratio(value) for name, value in values.items()}
    return _named(point) | row | {"n": str(len(shares))}


def _paid_for(point: Point) -> int:
    """Workers that the hosts which were used have room for."""
    hosts, spread = point.common("num_hosts"), point.experiment.spread
    return point.room if hosts is None or spread is None else hosts * spread.workers_per_host


def _scaling(case: Case, point: Point) -> float | None:
    reference, here = alone_s(case, point), point.known("compute_s").mean()
    return None if reference is None else reference / here


def tasks_table(case: Case) -> pd.DataFrame:
    """A row for each task of each point: means of a worker's steps, bytes of a server."""
    rows = []
    for point in case.points:
        found = [read_tasks(record, path) for record, path in point.launch_files]
        tables = [table for table in found if not table.empty]
        if tables:
            means = pd.concat(tables).groupby("task", sort=False).mean()
            rows += [_task_row(point, str(task), own) for task, own in means.iterrows()]
    return pd.DataFrame(rows)


def _task_row(point: Point, task: str, own: pd.Series) -> dict[str, str]:
    seconds = {
        "mean step ms": "step_s",
        "input ms": "input_s",
        "compute ms": "compute_s",
        "waiting for others ms": "waiting_s",
        "exchange and update ms": "exchange_s",
        "update ms": "update_s",
        "dispatch ms": "dispatch_s",
        "hidden (traced) ms": "hidden_s",
        "processor ms": "cpu_s",
    }
    sent = point.sends
    own = own.rename({} if sent else {"exchange_s": "update_s"})
    values = {heading: ms_text(own.get(name)) for heading, name in seconds.items()}
    return {**_named(point), "task": task, **values, "MB": number(own["num_bytes"] / 1e6)}


def traced_ratios(point: Point) -> pd.Series:
    """Of each launch that knows both, the median traced step over the median measured one."""
    return (point.known("traced_step_s") / point.known("step_time_p50_s")).dropna()


def traced_table(traces: Mapping[Point, Path]) -> pd.DataFrame:
    """A row for each trace, as text: what tracing cost, over all launches of its point."""
    return pd.DataFrame([_traced_row(point, path) for point, path in traces.items()])


def _traced_row(point: Point, path: Path) -> dict[str, str]:
    ratios = traced_ratios(point)
    return {
        "setting": point.setting.label,
        "workers": str(point.num_workers),
        "measured step, ms": number(point.known("step_time_p50_s").mean() * 1e3),
        "traced step, ms": number(point.known("traced_step_s").mean() * 1e3),
        "traced over measured": _spread_text(ratios),
        "n": str(len(ratios)),
        "trace": path.name,
    }


def _spread_text(ratios: pd.Series) -> str:
    """The median, and the least and the largest in brackets."""
    if ratios.empty:
        return ratio(None)
    spread = f" [{ratio(ratios.min())}, {ratio(ratios.max())}]" if len(ratios) > 1 else ""
    return ratio(ratios.median()) + spread


def traced_sentence(traces: Mapping[Point, Path]) -> str:
    """One line for the screen; empty where no step was traced."""
    if not traces:
        return ""
    ratios = pd.concat([traced_ratios(point) for point in traces])
    ends = " to ".join(dict.fromkeys(map(ratio, (ratios.min(), ratios.max()))))
    cost = (
        f" Traced steps took {ends} times as long as measured ones "
        f"({count_text(len(ratios), 'launch')})."
        if len(ratios)
        else ""
    )
    return f"{count_text(len(traces), 'trace')} to open at {VIEWER}: timeline-*.json.gz.{cost}"


def trend_lines(points: Sequence[Point]) -> list[str]:
    """Settings that did not keep one speed in most of their launches; empty if there are none."""
    told = [
        f"{len(_with_trend(point))} of {count_text(len(point.launches), 'launch')} of "
        f"{point.setting.label} ({steadiness_text(_with_trend(point))})"
        for point in points
    ]
    trends = [len(_with_trend(point)) > len(point.launches) / 2 for point in points]
    named = " and ".join(compress(told, trends))
    if not named:
        return []
    return [f"{named} did not keep one speed: in longer runs, rates may differ."]


def _with_trend(point: Point) -> pd.DataFrame:
    """Without launches that stalled, which is told: a few stalls in a row look like a level."""
    labels = point.launches["steadiness"]
    has_trend = labels.notna() & (labels != Steadiness.FLAT).fillna(False)
    return point.launches[has_trend & (stalled_shares(point.launches) == 0.0)]


def humps_lines(case: Case) -> list[str]:
    """How many launches have step times with two humps, of which points, and one of them."""
    points = [point_name(point) for point in case.points for _ in point.launches.index]
    found = case.launches["second_hump_s"].notna()
    if not found.any():
        return []
    one, told = case.launches[found].iloc[0], int(case.launches["hump_s"].notna().sum())
    known = f" (known of {told})" * (told < len(found))
    humps = sorted(one[["hump_s", "second_hump_s"]].astype(float) * 1e3)
    near = " and ".join(f"{number(three_digits(ms))} ms" for ms in humps)
    return [
        f"Step times have two humps in {found.sum()} of {count_text(len(found), 'run')}"
        f"{known}{points_text(points, found)}. In one of {next(compress(points, found))} they are "
        f"near {near}."
    ]


def steadiness_text(launches: pd.DataFrame) -> str:
    """`2 flat, 1 warming up`; empty where no launch has raw timings."""
    counts = launches["steadiness"].value_counts()
    told = [f"{counts[label]} {label}" for label in Steadiness if label in counts]
    unknown = int((launches["steadiness"].isna() & launches["raw_timings"]).sum())
    more = [f"{unknown} with too few steps to tell"] if unknown else []
    return ", ".join(told + more)
