"""The tasks of one run: parts of every worker's steps, bytes of every server, processor time.

Decides nothing but where the values come from.  Reads the raw timings and the samples of a run,
which the table of runs does not keep.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from analysis.derive.costs import task_seconds
from analysis.derive.fastest_step import step_time_s
from analysis.derive.step_parts import PARTS, hidden_seconds, parts_of
from ps_allreduce.cluster import TaskId, TaskType
from ps_allreduce.errors import RecordFormatError
from ps_allreduce.record.files import RunFiles, load_raw
from ps_allreduce.record.records import RunRecord
from ps_allreduce.record.steps import measurement_window

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
