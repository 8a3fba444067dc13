"""A copy of the checkout with one of each addition trains."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from tests.test_additions import checkout as checkout
from tests.test_additions import run


@pytest.mark.tensorflow
def test_one_of_each_runs_together(checkout: Path) -> None:
    size = ["--image-size", "32", "--batch-per-worker", "2", "--workers", "1,2"]
    words = ["--launcher", "here", "--model", "Linear", *size, "--half-life", "3"]
    run(checkout, "experiments", "new-strategy", *words, "--allow-login-node")
    run(checkout, "analysis", "report", "results/new-strategy")
    summary = pd.read_csv(checkout / "results/new-strategy/summary.csv")
    assert sorted(summary.strategy) == ["plain_allreduce", "single"]
    assert set(summary.half_life.dropna()) == {3}
    assert set(summary.status) == {"ok"}
    assert set(summary.launcher) == {"here"}
    assert set(summary.model) == {"Linear"}
    report = (checkout / "results/new-strategy/report.html").read_text(encoding="utf-8")
    assert "plain_allreduce" in report
