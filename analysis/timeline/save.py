"""Traces of a case as files beside its report.

Decides their names.  They are compressed: both viewers open them as they are.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping
from pathlib import Path

from analysis.data.cases import Case, Point
from analysis.timeline.trace_events import trace_of
from analysis.timeline.traced import traced_run
from analysis.wording import workers_text
from ps_allreduce.record.files import write_atomically


def save_traces(case: Case, folder: Path) -> Mapping[Point, Path]:
    """Write the trace of every point with traced steps.

    Raises:
        UserError: no permission, or no space left.
    """
    saved = {}
    for point in case.points:
        run = traced_run(point)
        if run is not None:
            path = folder / trace_name(point)
            text = json.dumps(trace_of(run), separators=(",", ":"), allow_nan=False)
            # No time of writing in it: the same records give the same bytes.
            write_atomically(path, gzip.compress(text.encode(), mtime=0))
            saved[point] = path
    return saved


def trace_name(point: Point) -> str:
    """Told by strategy and workers; the identity tells apart what else differs."""
    workers = workers_text(point.num_workers).replace(" ", "-")
    return f"timeline-{point.setting.strategy}-{workers}-{point.experiment.experiment_id}.json.gz"
