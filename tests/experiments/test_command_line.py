"""The command line: mistakes are one sentence and status 2, results are a status and a line."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from experiments import __main__ as command_line
from launchers import make_launcher
from ps_allreduce.records import Status, iter_record_paths, load_record
from tests.fakes import FakeLauncher, bad_run, ok_run


@pytest.fixture
def launcher(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[FakeLauncher]:
    """A machine with four cores whose local launcher starts nothing; in an empty folder."""
    fake = FakeLauncher()

    def make(name: str, **settings: Any) -> Any:
        return fake if name == "local" else make_launcher(name, **settings)

    monkeypatch.setattr(command_line, "make_launcher", make)
    monkeypatch.setattr(command_line, "source_state", lambda: "0123456789ab")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 3})
    monkeypatch.chdir(tmp_path)
    handler = signal.getsignal(signal.SIGTERM)
    yield fake
    signal.signal(signal.SIGTERM, handler)


def run(*words: str) -> int:
    """Exit status of a command line."""
    try:
        return command_line.main(words)
    except SystemExit as stop:
        return int(stop.code or 0)


MISTAKES = [
    (["compare", "--profile", "fast"], "unknown profile 'fast'; choose one of quick, standard."),
    (["compare", "--launcher", "slrum"], "unknown launcher 'slrum'; choose one of local"),
    (["compare", "--model", "resnet"], "unknown model 'resnet'; choose one of SmallCNN, "),
    (["compare", "--layout", "mixed"], "unknown layout 'mixed'; choose one of colocated, "),
    (["compare", "--workers", "0"], "--workers takes numbers of 1 or more, for instance 1,2,4;"),
    (["compare", "--workers", "1,x"], "--workers takes numbers of 1 or more"),
    (["compare", "--workers", ""], "--workers takes numbers of 1 or more"),
    (["compare", "--workers", "-1"], "--workers takes numbers of 1 or more"),
    (["compare", "--emulate", "x"], "--emulate takes two numbers of seconds, for instance 0.02,"),
    (["compare", "--emulate", "0.1"], "--emulate takes two numbers of seconds"),
    (["compare", "--emulate", "1,2,3"], "--emulate takes two numbers of seconds"),
    (["compare", "--emulate", "0,1"], "forward_s must be at least 0.001, got 0."),
    (["compare", "--emulate", "nan,nan"], "forward_s must be at least 0.001, got nan."),
    (["compare", "--input", "nowhere"], "input 'nowhere' is neither synthetic, digits nor a fold"),
    (["compare", "--batch-per-worker", "0"], "batch_per_worker must be at least 1, got 0."),
    (["compare", "--accumulation", "-2"], "accumulation must be at least 1, got -2."),
    (["compare", "--repetitions", "0"], "repetitions must be at least 1, got 0."),
    (["compare", "--cores-per-worker", "0"], "cores_per_worker must be at least 1, got 0."),
    (["compare", "--workers", "1", "--cores-per-worker", "0"], "cores_per_worker must be at least"),
    (["compare", "--num-ps", "0"], "num_ps must be at least 1, got 0."),
    (["compare", "--num-ps", "99"], "99 parameter servers but only 4 trainable variables"),
    (["compare", "--results", "/dev/null"], "cannot write to /dev/null/compare"),
    (["ps-sweep", "--split-bytes", "0"], "split_bytes must be at least 1, got 0."),
    (["allreduce-sweep", "--num-ps", "2"], "allreduce-sweep has no parameter servers"),
    (["placement-sweep", "--num-ps", "-1"], "num_ps must be at least 1, got -1."),
    (["run-one", "--strategy", "magic"], "unknown strategy 'magic'; choose one of single, no_com"),
    (
        ["run-one", "--strategy", "ps_sync", "--placement", "random"],
        "unknown placement 'random'; choose one of round_robin, greedy,",
    ),
    (
        ["run-one", "--strategy", "allreduce", "--collective", "mpi"],
        "unknown collective 'mpi'; choose one of ring, nccl, auto.",
    ),
    (["run-one", "--strategy", "single", "--num-workers", "2"], "strategy single runs on 1 worker"),
    (["run-one", "--strategy", "allreduce", "--num-workers", "0"], "num_workers must be at least"),
    (["run-one", "--strategy", "ps_sync", "--num-ps", "0"], "needs num_ps of 1 or more"),
    (["run-one", "--strategy", "allreduce", "--num-ps", "2"], "has no parameter servers"),
    (["run-one", "--strategy", "single", "--threads-per-worker", "0"], "threads_per_worker must"),
    (
        ["run-one", "--strategy", "allreduce", "--bytes-per-pack", "-1"],
        "bytes_per_pack must be at least 0, got -1.",
    ),
    (["placement", "--model", "VGG17"], "unknown model 'VGG17'"),
    (["placement", "--num-ps", "0"], "placement needs at least 1 parameter server, got 0."),
    (["placement", "--split-bytes", "0"], "split_bytes must be at least 1, got 0."),
    (
        ["placement", "--model", "InceptionV3", "--image-size", "74"],
        "image_size 74 is below the minimum of InceptionV3: use 75 or more.",
    ),
    (
        ["compare", "--model", "ResNet50", "--image-size", "16"],
        "image_size 16 is below the minimum of ResNet50: use 32 or more.",
    ),
]


@pytest.mark.usefixtures("launcher")
@pytest.mark.parametrize(("words", "sentence"), MISTAKES, ids=[" ".join(w) for w, _ in MISTAKES])
def test_a_mistake_is_one_sentence_and_status_2(
    words: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*words) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("Error: ")
    assert sentence in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    "words",
    [["no-such-study"], ["compare", "--no-such-option"], ["compare", "--num-ps", "two"]],
)
@pytest.mark.usefixtures("launcher")
def test_a_mistyped_command_says_how_to_get_help(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*words) == 2
    err = capsys.readouterr().err
    assert "Usage: python -m experiments" in err
    assert "--help" in err
    assert "Traceback" not in err


@pytest.mark.usefixtures("launcher")
@pytest.mark.parametrize("words", [["--help"], ["compare", "--help"], ["run-one", "-h"]])
def test_help_is_no_mistake(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(*words) == 0
    assert "Usage: python -m experiments" in capsys.readouterr().out


def test_one_core_is_too_few_for_a_comparison(
    launcher: FakeLauncher, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0})
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
    assert "Interrupted; the same command goes on." in capsys.readouterr().err


def test_one_run_prints_one_line_and_is_made_again_every_time(
    launcher: FakeLauncher, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = []
    for _ in range(2):
        assert run("run-one", "--strategy", "ps_sync", "--num-ps", "2", "--num-workers", "2") == 0
        out, err = capsys.readouterr()
        assert (out.count("\n"), err) == (1, "")
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
