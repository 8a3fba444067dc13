"""The bench from the command line: which sweeps a launcher makes, and what they leave."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from experiments import surroundings
from launchers.run.conclude import LaunchedRun
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.measurement import RecordingComparison
from ps_allreduce.record.records import Phases, RecordingTimes, Status
from tests.experiments.conftest import Machine, run
from tests.fakes import FakeLauncher, bad_run, fit, ok_run

BENCH = Path("results/bench")

EMULATED = ("--launcher", "emulated", "--hosts", "6", "--bandwidth", "1gbit")

ALL = {"recording": 20, "overhead": 5, "standard": 4}

TIMES = RecordingTimes(recorded_s=(1.0, 2.0, 3.0), bare_s=(1.0, 1.0, 1.0), steps_per_stretch=7)


@dataclass(slots=True)
class Bench(FakeLauncher):
    """A launcher whose runs have what a bench looks at, unless a test fails them."""

    fails: Callable[[Experiment], bool] = lambda _: False

    def launch(self, experiment: Experiment, **_: Any) -> LaunchedRun:
        self.launched.append(experiment)
        self.on_launch(experiment)
        time.sleep(0.001)  # records count milliseconds, and no real run takes none
        if self.fails(experiment):
            return bad_run(Status.FAILED)
        if isinstance(experiment.measurement, RecordingComparison):
            return ok_run(metrics=None, recording=TIMES)
        phases = Phases(bring_up_s=0.5, build_s=0.0, first_step_s=0.0, warmup_s=0.0, measured_s=0.0)
        return fit(ok_run(phases=phases), experiment)


@pytest.fixture
def bench(launcher: FakeLauncher, machine: Machine, monkeypatch: pytest.MonkeyPatch) -> Bench:
    made = Bench(num_hosts=6)
    monkeypatch.setattr(surroundings, "launcher_of", lambda _: made)
    return made


def sweeps() -> dict[str, int]:
    """Records by sweep."""
    return {
        folder.parent.name: len(list(folder.glob("*/*.json"))) for folder in BENCH.glob("*/runs")
    }


def content() -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((BENCH / "bench.json").read_text())
    return loaded


def test_one_host_also_measures_recording_and_a_whole_sweep(
    bench: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("bench") == 0
    assert sweeps() == ALL
    assert {point.resources.cores_per_worker for point in bench.launched} == {1}
    assert content()["recording_overhead"] == pytest.approx(2.0)
    assert content()["bring_up_s_all"] == {"local": [0.5] * 5}
    assert "ps_async     2.0000 [2.0000, 2.0000], 5 launches" in capsys.readouterr().out


def test_launchers_share_a_folder(bench: Bench) -> None:
    assert run("bench") == run("bench", *EMULATED) == 0
    assert set(content()["bring_up_s"]) == {"local", "emulated"}
    assert content()["recording_overhead"] == pytest.approx(2.0)


def test_an_interrupted_bench_goes_on(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupt(_: Experiment) -> None:
        if len(bench.launched) == 7:
            raise KeyboardInterrupt

    bench.on_launch = interrupt
    assert run("bench") == 130
    assert not (BENCH / "bench.json").exists()
    assert run("bench") == 0
    assert len(bench.launched) == 1 + sum(ALL.values())
    assert sweeps() == ALL | {"recording": 21}


def test_a_run_that_fails_is_told_and_the_rest_counts(
    bench: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    bench.fails = lambda point: point.strategy.uses_collective
    assert run("bench") == 1
    out = capsys.readouterr().out
    assert "recording: 5 of 20 runs did not end well: worker:1 was killed by SIGKILL" in out
    assert set(content()["recording_overhead_by_strategy"]) == {"single", "ps_async", "ps_sync"}


def test_recording_is_compared_over_stretches_of_a_stated_length() -> None:
    comparison = RecordingComparison()
    assert comparison.steps_per_stretch(0.01) * 0.01 == pytest.approx(comparison.stretch_s)
    assert comparison.steps_per_stretch(1000.0) == 2
