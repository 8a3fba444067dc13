"""What the sweeps of a bench come to."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from analysis.__main__ import cli
from analysis.suite.bench import summarise_bench
from ps_allreduce.errors import UserError
from ps_allreduce.point.measurement import FixedWarmup, Measurement, RecordingComparison
from ps_allreduce.record.records import Phases, RecordingTimes, RunRecord
from tests.analysis.builders import metrics, provenance, run, save_all
from tests.fakes import make_experiment, make_sample

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
        return run(COMPARED, 100.0, number, metrics=None, recording=times)

    launches = [launch(number, middle) for number, middle in enumerate((1.0, 2.0, 4.0))]
    save_all(tmp_path / "bench" / "recording", launches)
    _, line, *_ = summarise_bench(tmp_path)
    # The t-interval: 4.303 x ln 2 / sqrt(3) on the logarithm.
    assert line.startswith("  ps_sync      2.0000 [0.3575, 11.1900], 3 launches (target: ")
    assert "at most 1.01, undecided: two traces of one step differ by 2 %" in line
    cost = bench_of(tmp_path)["recording_overhead_by_strategy"]["ps_sync"]
    assert cost["ratio"] == pytest.approx(2.0)


def test_overhead_is_all_but_warm_up_and_measured_steps(tmp_path: Path) -> None:
    launches = [run(POINT, 100.0, number, phases=PHASES) for number in range(3)]
    quick = replace(PHASES, build_s=1.5)
    others = [(replace(POINT, launcher="ssh"), PHASES), (replace(POINT, launcher="slurm"), quick)]
    elsewhere = [[run(point, 100.0, phases=phases)] for point, phases in others]
    save_all(tmp_path / "bench" / "overhead", launches, *elsewhere)
    lines = summarise_bench(tmp_path)
    bench = bench_of(tmp_path)
    assert bench["overhead_per_run_s"] == {"local": 5.0, "slurm": 5.0, "ssh": 5.0}
    assert bench["launch_s"] == pytest.approx({"local": 1.4, "slurm": 0.9, "ssh": 1.4})
    assert bench["bring_up_s_all"] == {"local": [0.5] * 3, "slurm": [0.5], "ssh": [0.5]}
    assert lines[0].startswith("local: bring-up of four tasks 0.50 s (target: at most 3, met), ")
    assert (
        "all but building and steps 0.90 s (target: at most 1.5 on whole nodes, met), " in lines[1]
    )
    assert lines[2].endswith("all but warm-up and measured steps 5.00 s, n=1")


def test_both_warm_ups_are_compared_launch_by_launch(tmp_path: Path) -> None:
    fixed = replace(POINT, measurement=Measurement(warmup=FixedWarmup()))
    short = replace(PHASES, warmup_s=1.5)
    steady = [run(POINT, 102.0 * 2**number, number, phases=short) for number in range(4)]
    as_long = [run(fixed, 100.0 * 2**number, number, phases=PHASES) for number in range(4)]
    save_all(tmp_path / "bench" / "warmup", steady, as_long)
    _, line, *_ = summarise_bench(tmp_path)
    told = "1.0200 [1.0200, 1.0200], 4 and 4 launches, 1.5 s and 5.0 s of warm-up"
    assert line.startswith(f"  ps_sync      {told} (target: 0.99 to 1.01, not met: ")
    assert bench_of(tmp_path)["warmup"]["ps_sync"]["ratio"] == pytest.approx(1.02)


def test_idle_time_between_sessions_is_no_cost_of_a_sweep(tmp_path: Path) -> None:
    # Runs of twenty seconds begin a minute apart.
    launches = [run(POINT, 100.0, number, phases=PHASES) for number in range(2)]
    save_all(tmp_path / "bench" / "standard", launches)
    assert "0.75 (target: at least 0.60, met)" in summarise_bench(tmp_path)[0]
    assert list(bench_of(tmp_path)["useful_fraction"].values()) == [0.75]


def test_both_clocks_of_a_sweep_are_told_of_each_strategy(tmp_path: Path) -> None:
    metrics_ = metrics(100.0)
    inside_s = (metrics_.measured_steps + 3) * POINT.global_batch / 100.0
    launches = [
        run(POINT, 100.0, number, phases=replace(PHASES, measured_s=inside_s * ratio))
        for number, ratio in enumerate((1.001, 1.003))
    ]
    save_all(tmp_path / "bench" / "standard", launches)
    heading, line = summarise_bench(tmp_path)[1:3]
    assert heading.startswith("clocks: time of all steps by the driving task over that by")
    assert line == "  ps_sync      1.0020, 2 runs (target: 0.99 to 1.01, met)"
    assert bench_of(tmp_path)["clocks"] == {"ps_sync": pytest.approx(1.002)}


def test_only_the_newest_block_counts(tmp_path: Path) -> None:
    older = run(POINT, 100.0, 0, phases=replace(PHASES, bring_up_s=9.0))
    newer = run(POINT, 100.0, 1, phases=PHASES, provenance=provenance(fingerprint="bbbbbbbb"))
    save_all(tmp_path / "bench" / "overhead", [older, newer])
    summarise_bench(tmp_path)
    assert bench_of(tmp_path)["bring_up_s_all"] == {"local": [0.5]}


def test_what_is_not_made_yet_is_told(tmp_path: Path) -> None:
    folder = tmp_path / "bench" / "overhead"
    save_all(folder, [run(POINT, 100.0, phases=PHASES)])
    order = [f"{POINT.experiment_id}/{number}" for number in range(5)]
    (folder / "sweep.json").write_text(json.dumps({"order": order}))
    assert "overhead: 4 runs are missing; the same command makes them" in summarise_bench(tmp_path)


def test_numbers_that_no_sweep_here_gives_stay(tmp_path: Path) -> None:
    save_all(tmp_path / "bench" / "overhead", [run(POINT, 100.0, phases=PHASES)])
    former = {"widths": {"ratio": 0.4}, "conversion": [{}], "interval_coverage": {}}
    earlier = {"bring_up_s": {"slurm": 1.5}, "wire": [{"network": None}], **former}
    (tmp_path / "bench" / "bench.json").write_text(json.dumps(earlier))
    summarise_bench(tmp_path)
    assert bench_of(tmp_path)["bring_up_s"] == {"slurm": 1.5, "local": 0.5}
    assert bench_of(tmp_path)["wire"] == earlier["wire"]
    assert former.items() <= bench_of(tmp_path).items()


@pytest.mark.parametrize(
    "content",
    [[], {"provenance": 4}, {"bring_up_s": []}, {"warmup": 3}, {"wire": 3}, {"wire": [{}]}],
)
def test_a_file_of_another_form_is_left_as_it_is(tmp_path: Path, content: Any) -> None:
    save_all(tmp_path / "bench" / "overhead", [run(POINT, 100.0, phases=PHASES)])
    path = tmp_path / "bench" / "bench.json"
    path.write_text(json.dumps(content))
    with pytest.raises(UserError, match=r"bench.json cannot be read \(not what a bench writes\)"):
        summarise_bench(tmp_path)
    assert json.loads(path.read_text()) == content


def test_a_damaged_record_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "bench" / "overhead"
    save_all(folder, [run(POINT, 100.0, number, phases=PHASES) for number in range(2)])
    (folder / "runs" / POINT.experiment_id / "1-1.json").write_text("{")
    told = [line for line in summarise_bench(tmp_path) if "not read" in line]
    assert [line.split(": ")[:3] for line in told] == [
        ["overhead", "not read", f"runs/{POINT.experiment_id}/1-1.json"]
    ]


def test_without_a_sweep_there_is_nothing_to_say(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="holds no sweep of a bench: run make bench first"):
        summarise_bench(tmp_path)


def test_copies_of_the_longest_record_are_loaded(tmp_path: Path) -> None:
    sampled = run(POINT, 100.0, samples=(make_sample(), make_sample(2.0)))
    save_all(tmp_path / "compare", [sampled, run(POINT, 100.0, 1)])
    done = CliRunner().invoke(cli, ["bench-load", str(tmp_path), "--records", "25"])
    assert done.output.startswith("loading 25 records of ")
    assert "at most 60 s and 2048 MiB" in done.output


@pytest.mark.parametrize(
    ("records", "told"), [("0", "at least 1, got 0"), ("9" * 40, "at most 1e+06, got 1e+40")]
)
def test_records_are_not_copied_never_or_for_ever(tmp_path: Path, records: str, told: str) -> None:
    done = CliRunner().invoke(cli, ["bench-load", str(tmp_path), "--records", records])
    assert isinstance(done.exception, UserError)
    assert told in str(done.exception)
