"""The example of docs/notebook.md, run as it stands."""

from __future__ import annotations

import re
from pathlib import Path

import pandas as pd
import pytest

from ps_allreduce.point.strategies import AllReduce, SynchronousServers
from ps_allreduce.record.step_table import Phase
from tests.analysis.builders import RATES, on_own_hosts, runs, save
from tests.fakes import make_experiment, make_steps

TEXT = (Path(__file__).resolve().parents[2] / "docs/notebook.md").read_text(encoding="utf-8")


def test_the_example_runs_as_it_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    phases = [Phase.FIRST, Phase.WARMUP, Phase.MEASURED, Phase.MEASURED]
    for strategy in (AllReduce, SynchronousServers):
        own = make_experiment(strategy, 2)
        for record in runs(own, RATES, **on_own_hosts(2, bits_per_s=800.0)):
            assert record.metrics is not None
            step_s = record.metrics.window_s / 2
            ends = [step_s * (number + 1) for number in range(4)]
            steps = make_steps(0, ends, phases, compute_s=0.4 * step_s)
            save(tmp_path / "results" / "compare", record, steps=steps)
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for block in re.findall(r"```python\n(.*?)```", TEXT, flags=re.DOTALL):
        exec(block, names)  # the document is the program
    table, shown = names["table"], capsys.readouterr().out
    assert isinstance(table, pd.DataFrame)
    assert len(table) == 6
    assert "allreduce" in shown
    assert "0.6" in shown.splitlines()[-2]
