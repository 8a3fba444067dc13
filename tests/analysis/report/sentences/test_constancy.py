"""What is told of machines that drift and of runs that are not steady, from made-up records."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from analysis.data.cases import make_cases
from analysis.report.sentences.verdict import verdict
from analysis.report.tables.table import report_table
from ps_allreduce.point.strategies import AllReduce, Single
from tests.analysis.builders import reported, runs, table_of, times
from tests.fakes import make_experiment

LABELS = ["flat", "flat", "warming up", "unsteady", "flat", None]


def test_labels_are_counted_on_the_page_and_in_the_table() -> None:
    own = make_experiment(AllReduce, 2)
    table, records = table_of([*runs(make_experiment(Single), times(1.0)), *runs(own, times(1.0))])
    labels = pd.Series(LABELS, index=table.index, dtype="string")
    (case,) = make_cases(table.assign(steadiness=labels), records)
    told = "3 flat, 1 warming up, 1 unsteady, 1 with too few steps to tell"
    assert f"Step times inside the windows of 6 runs: {told}." in verdict(case).details
    assert list(report_table(case, "steps")["steps of launches"]) == [
        "2 flat, 1 warming up",
        "1 flat, 1 unsteady, 1 with too few steps to tell",
    ]


def test_drift_is_a_warning_on_the_first_page(tmp_path: Path) -> None:
    drifting = {0: 100.0, 1: 98.0, 2: 90.0}
    text = reported(tmp_path, runs(make_experiment(Single), drifting))
    first_page = text.split("<nav")[0]
    assert "Drift above 3%: single (1 worker) made 100 at the start, 98 at the middle" in first_page
