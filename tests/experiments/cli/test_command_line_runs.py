"""The command line: what is run, and how it ends as a status and a line."""

from __future__ import annotations

import json
import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

import pytest

from experiments.studies.catalogue import STUDIES
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.network import EmulatedNetwork
from ps_allreduce.point.spread import Spread
from ps_allreduce.point.strategies import Strategy
from ps_allreduce.point.wire import Wire, WireType
from ps_allreduce.point.workload import Precision
from ps_allreduce.record.files import iter_record_paths, load_record
from ps_allreduce.record.records import Phases, Status
from tests.experiments.conftest import run
from tests.fakes import FakeLauncher, bad_run, ok_run


def test_one_core_is_too_few_for_a_comparison(
    launcher: FakeLauncher, capsys: pytest.CaptureFixture[str]
) -> None:
    launcher.cores_per_host = 1
    assert run("compare") == 2
    assert "this machine offers 1 core" in capsys.readouterr().err


def test_a_sweep_runs_and_is_not_repeated(
    launcher: FakeLauncher, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("allreduce-sweep", "--workers", "1", "--repetitions", "1") == 0
    assert "6 runs made (6 ok), 0 kept" in capsys.readouterr().err
    assert len(list(iter_record_paths(tmp_path / "results" / "allreduce-sweep"))) == 6
    assert run("allreduce-sweep", "--workers", "1", "--repetitions", "1") == 0
    assert "0 runs made (none needed), 6 kept" in capsys.readouterr().err
    assert len(launcher.launched) == 6


def test_what_is_asked_for_reaches_every_point(launcher: FakeLauncher, tmp_path: Path) -> None:
    words = ["--workers", "2", "--model", "ResNet50", "--image-size", "48", "--accumulation", "2"]
    words += ["--batch-per-worker", "4", "--emulate", "0.02,0.04", "--input", "synthetic"]
    words += ["--cores-per-worker", "2", "--layout", "dedicated", "--num-ps", "2"]
    assert run("compare", "--repetitions", "1", "--results", str(tmp_path / "r"), *words) == 0
    workload = launcher.launched[0].workload
    assert {point.workload for point in launcher.launched} == {workload}
    assert (workload.model, workload.image_size, workload.accumulation) == ("ResNet50", 48, 2)
    assert (workload.batch_per_worker, workload.input) == (4, "synthetic")
    assert workload.emulated is not None
    assert (workload.emulated.forward_s, workload.emulated.backward_s) == (0.02, 0.04)
    assert {point.resources.cores_per_worker for point in launcher.launched} == {2}
    assert {point.layout for point in launcher.launched if point.num_ps} == {"dedicated"}
    assert (tmp_path / "r" / "compare" / "sweep.json").exists()


WIRE_WORDS = (
    *("--group-bytes", "0", "--cut-bytes", "2000", "--in-flight", "1", "--gradients", "bfloat16"),
)

WIRE = Wire(
    group_bytes=0,
    cut_bytes=2000,
    in_flight=1,
    gradients=WireType.BFLOAT16,
)

DEALING_WORDS = ("--staleness", "4", "--steps-per-dispatch", "2")


def _uses_the_wire(point: Experiment) -> bool:
    return point.traits.communicates and point.bytes_per_pack is None


@pytest.mark.parametrize("name", [name for name in STUDIES if name != "tuning-sweep"])
def test_settings_reach_those_points_of_a_sweep_that_they_belong_to(
    name: str, launcher: FakeLauncher
) -> None:
    has_dealers = name in ("compare", "ps-sweep")
    words = [*WIRE_WORDS, *(DEALING_WORDS if has_dealers else ()), "--precision", "mixed_bfloat16"]
    words += ["--host-aggregation"] if name != "allreduce-sweep" else []
    assert run(name, "--workers", "2", "--repetitions", "1", *words) == 0
    for point in launcher.launched:
        assert point.workload.precision is Precision.MIXED_BFLOAT16
        aggregates = point.strategy is Strategy.PS_SYNC
        wire = replace(WIRE, host_aggregation=aggregates) if _uses_the_wire(point) else Wire()
        assert point.wire == wire
        dealing = (4, 2) if point.traits.deals_steps else (None, 1)
        assert (point.staleness, point.steps_per_dispatch) == dealing
    assert any(map(_uses_the_wire, launcher.launched))
    assert any(point.traits.deals_steps for point in launcher.launched) is has_dealers


def test_settings_reach_a_single_run(launcher: FakeLauncher) -> None:
    words = [*WIRE_WORDS, *DEALING_WORDS, "--precision", "mixed_float16"]
    assert run("run-one", "--strategy", "ps_async", *words) == 0
    (point,) = launcher.launched
    assert (point.wire, point.staleness, point.steps_per_dispatch) == (WIRE, 4, 2)
    assert point.workload.precision is Precision.MIXED_FLOAT16


@pytest.mark.parametrize("words", [("--bytes-per-pack", "0"), ("--collective", "auto")])
def test_packs_are_used_where_they_are_asked_for_or_needed(
    words: tuple[str, str], launcher: FakeLauncher
) -> None:
    assert run("run-one", "--strategy", "allreduce") == 0
    assert run("run-one", "--strategy", "allreduce", *words) == 0
    assert [point.bytes_per_pack for point in launcher.launched] == [None, 0]


def test_a_folder_of_images_is_found_from_every_working_directory(
    launcher: FakeLauncher, tmp_path: Path
) -> None:
    (tmp_path / "images").mkdir()
    assert run("run-one", "--strategy", "single", "--input", "images") == 0
    assert launcher.launched[0].workload.input == str((tmp_path / "images").resolve())


def test_failed_points_make_status_1(
    launcher: FakeLauncher, capsys: pytest.CaptureFixture[str]
) -> None:
    launcher.script = [bad_run(Status.FAILED), ok_run()]
    assert run("allreduce-sweep", "--workers", "1", "--repetitions", "1") == 1
    err = capsys.readouterr().err
    assert "failed, worker:1 was killed by SIGKILL" in err
    assert "6 ok, 1 failed" in err


def test_an_interruption_makes_status_130_and_says_how_to_go_on(
    launcher: FakeLauncher, capsys: pytest.CaptureFixture[str]
) -> None:
    launcher.script = [bad_run(Status.INTERRUPTED)]
    assert run("allreduce-sweep", "--workers", "1") == 130
    assert "the same command goes on" in capsys.readouterr().err


def test_an_interruption_between_runs_makes_status_130_too(
    launcher: FakeLauncher, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt(_: object) -> None:
        os.kill(os.getpid(), signal.SIGTERM)

    launcher.on_launch = interrupt
    assert run("compare", "--workers", "1") == 130
    assert "Interrupted. A sweep goes on with the same command" in capsys.readouterr().err


def test_a_bench_that_is_interrupted_says_where_its_rows_are(
    launcher: FakeLauncher, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    measured = replace(ok_run(), phases=Phases(bring_up_s=0.5, total_s=1.0))
    launcher.num_hosts, launcher.script = 6, [*[measured] * 5, bad_run(Status.INTERRUPTED)]
    words = ["--launcher", "emulated", "--hosts", "6", "--bandwidth", "1gbit"]
    assert run("bench", *words) == 130
    told = capsys.readouterr().err
    assert "Interrupted; parts that were over are in" in told
    kept = json.loads((tmp_path / "results" / "bench" / "bench.json").read_text())
    assert list(kept["overhead_per_run_s"]) == ["emulated"]


def test_a_bench_that_is_interrupted_in_its_first_part_did_not_fail(
    launcher: FakeLauncher, capsys: pytest.CaptureFixture[str]
) -> None:
    launcher.num_hosts, launcher.script = 6, [bad_run(Status.INTERRUPTED)]
    words = ["--launcher", "emulated", "--hosts", "6", "--bandwidth", "1gbit"]
    assert run("bench", *words) == 130
    assert "failed" not in capsys.readouterr().err


def test_a_bench_on_too_few_hosts_is_refused_before_it_measures(
    launcher: FakeLauncher, capsys: pytest.CaptureFixture[str]
) -> None:
    launcher.num_hosts = 2
    words = ["--launcher", "emulated", "--hosts", "2", "--bandwidth", "1gbit"]
    assert run("bench", *words) == 2
    assert "the bench takes 6 hosts, and there are 2: --hosts 6." in capsys.readouterr().err
    assert launcher.launched == []


def test_one_run_prints_one_line_and_is_made_again_every_time(
    launcher: FakeLauncher, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = []
    for _ in range(2):
        assert run("run-one", "--strategy", "ps_sync", "--num-ps", "2", "--num-workers", "2") == 0
        out, err = capsys.readouterr()
        assert out.count("\n") == 1
        assert "1/1 ps_sync" in err
        runs.append(json.loads(out))
    assert [content["run_id"].split("/")[1] for content in runs] == ["0-0", "1-0"]
    record = load_record(tmp_path / runs[1]["record_path"])
    assert record.run_id == runs[1]["run_id"]
    assert record.experiment.num_ps == 2


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (Status.FAILED, 1),
        (Status.TIMED_OUT, 1),
        (Status.INVALID, 1),
        (Status.INTERRUPTED, 130),
    ],
)
def test_one_run_that_fails_is_a_line_and_a_status(
    launcher: FakeLauncher,
    capsys: pytest.CaptureFixture[str],
    status: Status,
    expected: int,
) -> None:
    launcher.script = [bad_run(status, "too slow")]
    assert run("run-one", "--strategy", "single") == expected
    content = json.loads(capsys.readouterr().out)
    assert (content["status"], content["reason"]) == (str(status), "too slow")


@pytest.mark.usefixtures("launcher")
def test_the_dry_run_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("placement", "--model", "VGG16", "--num-ps", "2", "--split-bytes", "4000") == 0
    out = capsys.readouterr().out
    assert out.startswith("VGG16: 4 trainable variables, 0.0 MB; largest dense/kernel")
    assert "Suggested: partitioned (max/mean 1.11, 9 variables or shards)." in out


EMULATED = ("--launcher", "emulated", "--hosts", "2", "--bandwidth", "1gbit", "--delay", "1ms")


def test_on_several_hosts_every_point_states_spread_network_and_interface(
    launcher: FakeLauncher,
) -> None:
    launcher.num_hosts = 2
    words = [*EMULATED, "--workers-per-host", "2", "--ps-per-host", "1", "--interface", "eth0"]
    assert run("compare", "--workers", "1,2", "--repetitions", "1", *words) == 0
    assert {point.launcher for point in launcher.launched} == {"emulated"}
    assert {point.spread for point in launcher.launched} == {
        Spread(workers_per_host=2, ps_per_host=1)
    }
    network = EmulatedNetwork(num_hosts=2, bits_per_s=1e9, delay_s=1e-3)
    assert {point.network for point in launcher.launched} == {network}
    assert {point.interface for point in launcher.launched} == {"eth0"}
    assert {point.num_workers for point in launcher.launched} == {1, 2}


def test_without_a_wish_workers_are_doubled_up_to_the_number_of_hosts(
    launcher: FakeLauncher,
) -> None:
    launcher.num_hosts = 5
    words = ["--launcher", "emulated", "--hosts", "5", "--repetitions", "1"]
    assert run("allreduce-sweep", *words) == 0
    assert {point.num_workers for point in launcher.launched} == {1, 2, 4}
    assert {point.resources.cores_per_worker for point in launcher.launched} == {4}


def test_points_that_need_more_hosts_are_left_out_and_counted(
    launcher: FakeLauncher, capsys: pytest.CaptureFixture[str]
) -> None:
    launcher.num_hosts = 2
    words = [*EMULATED, "--workers", "1,2,4", "--repetitions", "1"]
    assert run("allreduce-sweep", *words) == 0
    assert {point.num_workers for point in launcher.launched} == {1, 2}
    told = " ".join(capsys.readouterr().err.split())
    assert "5 of 16 points do not fit on the hosts and are left out; the first: " in told
    assert "4 hosts are needed but there are 2." in told


def test_a_sweep_of_which_nothing_fits_is_refused(
    launcher: FakeLauncher, capsys: pytest.CaptureFixture[str]
) -> None:
    launcher.num_hosts = 0
    assert run("allreduce-sweep", *EMULATED, "--workers", "1,2") == 2
    assert "hosts are needed but there are 0." in capsys.readouterr().err
    assert launcher.launched == []


def test_a_dry_run_tells_the_points_and_the_time_and_runs_nothing(
    launcher: FakeLauncher, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("allreduce-sweep", "--workers", "1", "--dry-run") == 0
    told = capsys.readouterr().out
    assert "6 points, 18 runs, about" in told
    assert "  allreduce, SmallCNN, 1 worker" in told
    assert launcher.launched == []
    assert not (tmp_path / "results").exists()


@pytest.mark.usefixtures("launcher")
def test_a_dry_run_tells_that_results_cannot_be_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "taken").write_text("")
    words = ["--results", str(tmp_path / "taken"), "--dry-run"]
    assert run("allreduce-sweep", "--workers", "1", *words) == 2
    assert "is no folder" in capsys.readouterr().err


def test_a_jobs_end_makes_status_1_and_says_how_to_go_on(
    launcher: FakeLauncher, capsys: pytest.CaptureFixture[str]
) -> None:
    launcher.time_left = lambda: 30.0
    assert run("allreduce-sweep", "--workers", "1") == 1
    assert "The job's time is up" in capsys.readouterr().err
    assert launcher.launched == []


class Killed(BaseException):
    """As much of a kill as a test can take."""


def test_a_run_that_was_killed_is_told_of_by_the_next_command(
    launcher: FakeLauncher, capsys: pytest.CaptureFixture[str]
) -> None:
    def kill(_: object) -> NoReturn:
        raise Killed

    launcher.on_launch = kill
    with pytest.raises(Killed):
        run("run-one", "--strategy", "single")
    launcher.on_launch = lambda _: None
    assert run("run-one", "--strategy", "single") == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["run_id"].endswith("/1-0")
    assert err.startswith("recorded ")
    assert "/0-0: interrupted, the suite ended during this run" in err
