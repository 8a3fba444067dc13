"""The bench: which sweeps a launcher makes, what they leave, and what they come to."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from experiments import surroundings
from experiments.suite.bench import summarise_bench
from launchers.run.conclude import LaunchedRun
from ps_allreduce.errors import UserError
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.measurement import RecordingComparison
from ps_allreduce.record.records import Phases, RecordingTimes, RunRecord, Status
from tests.analysis.builders import metrics, provenance, save_all
from tests.analysis.builders import run as made
from tests.experiments.conftest import Machine, run
from tests.fakes import FakeLauncher, bad_run, fit, make_experiment, ok_run

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


PHASES = Phases(
    bring_up_s=0.5, build_s=1.0, first_step_s=2.6, warmup_s=5.0, measured_s=10.0, total_s=19.0
)

POINT = make_experiment()

COMPARED = replace(POINT, measurement=RecordingComparison())


def bench_of(folder: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((folder / "bench" / "bench.json").read_text())
    return content


def test_recording_costs_the_median_ratio_of_a_launch_and_the_mean_of_launches(
    tmp_path: Path,
) -> None:
    def launch(number: int, middle: float) -> RunRecord:
        times = RecordingTimes(
            recorded_s=(9.0, middle, 1.0), bare_s=(1.0, 1.0, 1.0), steps_per_stretch=7
        )
        return made(COMPARED, 100.0, number, metrics=None, recording=times)

    launches = [launch(number, middle) for number, middle in enumerate((1.0, 2.0, 4.0))]
    save_all(tmp_path / "bench" / "recording", launches)
    _, line, *_ = summarise_bench(tmp_path)
    # The t-interval: 4.303 x ln 2 / sqrt(3) on the logarithm.
    assert line == "  ps_sync      2.0000 [0.3575, 11.1900], 3 launches"
    cost = bench_of(tmp_path)["recording_overhead_by_strategy"]["ps_sync"]
    assert cost["ratio"] == pytest.approx(2.0)


def test_overhead_is_all_but_warm_up_and_measured_steps(tmp_path: Path) -> None:
    launches = [made(POINT, 100.0, number, phases=PHASES) for number in range(3)]
    quick = replace(PHASES, build_s=1.5)
    others = [(replace(POINT, launcher="ssh"), PHASES), (replace(POINT, launcher="slurm"), quick)]
    elsewhere = [[made(point, 100.0, phases=phases)] for point, phases in others]
    save_all(tmp_path / "bench" / "overhead", launches, *elsewhere)
    lines = summarise_bench(tmp_path)
    bench = bench_of(tmp_path)
    assert bench["overhead_per_run_s"] == {"local": 5.0, "slurm": 5.0, "ssh": 5.0}
    assert bench["launch_s"] == pytest.approx({"local": 1.4, "slurm": 0.9, "ssh": 1.4})
    assert bench["bring_up_s_all"] == {"local": [0.5] * 3, "slurm": [0.5], "ssh": [0.5]}
    assert lines[0].startswith("local: bring-up of four tasks 0.50 s (target: at most 3), ")
    assert "all but building and steps 0.90 s (target on whole nodes: at most 1.5), " in lines[1]
    assert lines[2].endswith("all but warm-up and measured steps 5.00 s, n=1")


def test_idle_time_between_sessions_is_no_cost_of_a_sweep(tmp_path: Path) -> None:
    # Runs of twenty seconds begin a minute apart.
    launches = [made(POINT, 100.0, number, phases=PHASES) for number in range(2)]
    save_all(tmp_path / "bench" / "standard", launches)
    assert "0.75 (target: at least 0.60)" in summarise_bench(tmp_path)[0]
    assert list(bench_of(tmp_path)["useful_fraction"].values()) == [0.75]


def test_both_clocks_of_a_sweep_are_told_of_each_strategy(tmp_path: Path) -> None:
    metrics_ = metrics(100.0)
    inside_s = (metrics_.measured_steps + 3) * POINT.global_batch / 100.0
    launches = [
        made(POINT, 100.0, number, phases=replace(PHASES, measured_s=inside_s * ratio))
        for number, ratio in enumerate((1.001, 1.003))
    ]
    save_all(tmp_path / "bench" / "standard", launches)
    heading, line = summarise_bench(tmp_path)[1:3]
    assert heading.startswith("clocks: time of all steps by the driving task over that by")
    assert line == "  ps_sync      1.0020, 2 runs"
    assert bench_of(tmp_path)["clocks"] == {"ps_sync": pytest.approx(1.002)}


def test_only_the_newest_block_counts(tmp_path: Path) -> None:
    older = made(POINT, 100.0, 0, phases=replace(PHASES, bring_up_s=9.0))
    newer = made(POINT, 100.0, 1, phases=PHASES, provenance=provenance(fingerprint="bbbbbbbb"))
    save_all(tmp_path / "bench" / "overhead", [older, newer])
    summarise_bench(tmp_path)
    assert bench_of(tmp_path)["bring_up_s_all"] == {"local": [0.5]}


def test_what_is_not_made_yet_is_told(tmp_path: Path) -> None:
    folder = tmp_path / "bench" / "overhead"
    save_all(folder, [made(POINT, 100.0, phases=PHASES)])
    order = [f"{POINT.experiment_id}/{number}" for number in range(5)]
    (folder / "sweep.json").write_text(json.dumps({"order": order}))
    assert "overhead: missing: 4 runs; the same command makes them" in summarise_bench(tmp_path)


def test_a_damaged_record_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "bench" / "overhead"
    save_all(folder, [made(POINT, 100.0, number, phases=PHASES) for number in range(2)])
    (folder / "runs" / POINT.experiment_id / "1-1.json").write_text("{")
    told = [line for line in summarise_bench(tmp_path) if "not read" in line]
    assert [line.split(": ")[:3] for line in told] == [
        ["overhead", "not read", f"runs/{POINT.experiment_id}/1-1.json"]
    ]


def test_without_a_sweep_there_is_nothing_to_say(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="holds no sweep of a bench: run make bench first"):
        summarise_bench(tmp_path)
