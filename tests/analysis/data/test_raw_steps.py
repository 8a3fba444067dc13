"""The raw timings of a run as a table, and whether the table of runs holds every fact."""

from __future__ import annotations

from pathlib import Path

import pytest

import analysis
from analysis.data.columns import COLUMNS, CONDITIONS, SETTINGS, make_table
from ps_allreduce.errors import RecordFormatError
from ps_allreduce.point.strategies import STRATEGIES, AnyStrategy
from ps_allreduce.record.steps import Phase, concatenate
from tests.analysis.builders import run, save
from tests.fakes import make_experiment, make_steps

PHASES = [Phase.FIRST, Phase.WARMUP, Phase.MEASURED, Phase.MEASURED]
STEPS = concatenate(
    [
        make_steps(w, [0.1, 0.2, 0.3, 0.4], PHASES, pull_s=0.01, wait_s=0.02, compute_s=0.03)
        for w in (1, 0)
    ]
)


def test_steps_stand_by_worker_with_their_parts(tmp_path: Path) -> None:
    path = save(tmp_path, run(make_experiment(), 1.0), steps=STEPS)
    steps = analysis.load_steps(analysis.load(tmp_path).index[0])
    assert list(steps["worker"]) == [0] * 4 + [1] * 4
    assert list(steps["phase"][:4]) == ["first", "warmup", "measured", "measured"]
    assert list(steps["in_window"][:4]) == [False, False, True, True]
    row = steps.iloc[2]
    parts = [row[name] for name in ("step_s", "input_wait_s", "communication_s")]
    assert parts == pytest.approx([0.1, 0.02, 0.05])
    assert row["forward_s"] + row["backward_s"] == pytest.approx(0.03)
    steps["loss"] = 0.0
    assert analysis.load_steps(path)["loss"].iloc[0] == 2.0


def test_raw_timings_that_are_gone_are_one_sentence(tmp_path: Path) -> None:
    path = save(tmp_path, run(make_experiment(), 1.0), raw=False)
    with pytest.raises(RecordFormatError, match="raw timings cannot be read"):
        analysis.load_steps(path)


@pytest.mark.parametrize("strategy", STRATEGIES.values())
def test_everything_that_is_asked_for_is_compared(strategy: type[AnyStrategy]) -> None:
    derived = {"num_workers", "global_batch", "transport"}
    asked = set(make_experiment(strategy).columns())
    assert asked <= set(COLUMNS)
    assert asked - derived <= {*CONDITIONS, *SETTINGS}


def test_a_column_that_nobody_documented_is_refused() -> None:
    with pytest.raises(ValueError, match="has no column surprise"):
        make_table([{"surprise": 1}], ["a"])
