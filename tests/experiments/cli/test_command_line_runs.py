"""Sweeps from the command line: what is run, and how it ends as a status."""

from __future__ import annotations

import json
import os
import re
import signal
from pathlib import Path

import pytest

from experiments import surroundings
from experiments.cli import settle
from experiments.studies.catalogue import STUDIES
from experiments.sweep.sweep import QUICK_WARMUP
from ps_allreduce.point.inputs.data import Synthetic
from ps_allreduce.point.measurement import FixedWarmup, Measurement, SteadyWarmup
from ps_allreduce.point.models.recommenders import RECOMMENDERS
from ps_allreduce.point.models.shapes import PUBLISHED
from ps_allreduce.point.models.trained import ARCHITECTURES, TEXT_MODELS, ImageModel
from ps_allreduce.point.network import EmulatedNetwork
from ps_allreduce.point.resources import Device, LayoutKind, Spread
from ps_allreduce.point.strategies import AsynchronousServers, SynchronousServers
from ps_allreduce.point.workload import Precision
from ps_allreduce.record.files import iter_record_paths
from ps_allreduce.record.records import Status
from tests.experiments.cli.test_run_one import DEALING_WORDS, WIRE, WIRE_WORDS
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
    said = capsys.readouterr().err
    assert "6 runs made (6 ok); " in said
    assert "useful fraction" in said
    assert len(list(iter_record_paths(tmp_path / "results" / "allreduce-sweep"))) == 6
    assert run("allreduce-sweep", "--workers", "1", "--repetitions", "1") == 0
    said = capsys.readouterr().err
    assert "0 runs made (none needed), 6 were made before; " in said
    assert "useful fraction" not in said
    assert len(launcher.launched) == 6


def test_what_is_asked_for_reaches_every_point(launcher: FakeLauncher, tmp_path: Path) -> None:
    words = ["--workers", "2", "--model", "ResNet50", "--image-size", "48", "--accumulation", "2"]
    words += ["--batch-per-worker", "4", "--emulate", "0.02,0.04", "--input", "synthetic"]
    words += ["--worker-factors", "1:1.5,0:1.0", "--jitter", "gamma:0.1"]
    words += ["--cores-per-worker", "2", "--layout", "dedicated", "--num-ps", "2"]
    assert run("compare", "--repetitions", "1", "--results", str(tmp_path / "r"), *words) == 0
    workload = launcher.launched[0].workload
    assert {point.workload for point in launcher.launched} == {workload}
    assert workload.model == ImageModel(name="ResNet50", image_size=48)
    assert (workload.batch_per_worker, workload.accumulation) == (4, 2)
    assert workload.data == Synthetic()
    assert workload.emulated is not None
    assert (workload.emulated.forward_s, workload.emulated.backward_s) == (0.02, 0.04)
    assert workload.emulated.factors == (1.0, 1.5)
    assert str(workload.emulated.jitter) == "gamma:0.1:1"
    assert {point.resources.cores_per_worker for point in launcher.launched} == {2}
    servers = [point.strategy.servers for point in launcher.launched]
    assert {each.layout for each in servers if each} == {LayoutKind.DEDICATED}
    assert (tmp_path / "r" / "compare" / "sweep.json").exists()


#: Of no study from the literature, which says itself what it sends.
USUAL = {name for name, study in STUDIES.items() if study.small is None}


@pytest.mark.parametrize("name", sorted(USUAL - {"tuning-sweep", "ladder", "wire", "learning"}))
def test_settings_reach_those_points_of_a_sweep_that_they_belong_to(
    name: str, launcher: FakeLauncher
) -> None:
    has_dealers = name in ("compare", "ps-sweep", "timeline", "calibrate")
    words = [*WIRE_WORDS, *(DEALING_WORDS if has_dealers else ()), "--precision", "mixed_bfloat16"]
    words += ["--host-aggregation"] if name not in ("allreduce-sweep", "horovod-sweep") else []
    assert run(name, "--workers", "2", "--repetitions", "1", *words) == 0
    for point in launcher.launched:
        assert point.workload.precision is Precision.MIXED_BFLOAT16
        assert point.strategy.wire in (WIRE, None)
        assert point.strategy.host_aggregation is isinstance(point.strategy, SynchronousServers)
        if isinstance(point.strategy, AsynchronousServers):
            assert (point.strategy.staleness, point.strategy.steps_per_dispatch) == (4, 2)
    assert any(point.strategy.wire for point in launcher.launched)
    assert any(point.strategy.deals_steps for point in launcher.launched) is has_dealers


def test_points_that_failed_for_good_make_status_1_whenever_the_command_is_given(
    launcher: FakeLauncher, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["allreduce-sweep", "--workers", "1", "--repetitions", "1"]
    launcher.script = [bad_run(Status.FAILED), *[ok_run()] * 5, bad_run(Status.FAILED)]
    assert run(*words) == 1
    err = capsys.readouterr().err
    assert "failed, worker:1 was killed by SIGKILL" in err
    assert "5 ok, 2 failed" in err
    for more in ([], ["--dry-run"]):
        assert run(*words, *more) == (0 if more else 1)
        assert "1 point has failed for good: " in capsys.readouterr().err
    assert len(launcher.launched) == 7
    assert run(*words, "--retry-failed") == 0
    assert "1 run made (1 ok), 5 were made before; " in capsys.readouterr().err
    assert run(*words) == 0


def test_whoever_ends_the_tests_is_not_taken_for_the_user_of_a_command(
    launcher: FakeLauncher,
) -> None:
    before = signal.getsignal(signal.SIGTERM)
    assert run("allreduce-sweep", "--workers", "1", "--repetitions", "1") == 0
    assert signal.getsignal(signal.SIGTERM) is before


def test_an_interruption_in_or_between_runs_makes_status_130_and_says_how_to_go_on(
    asked_to_end: FakeLauncher, capsys: pytest.CaptureFixture[str]
) -> None:
    launcher = asked_to_end
    launcher.script = [bad_run(Status.INTERRUPTED)]
    assert run("allreduce-sweep", "--workers", "1", "--repetitions", "1") == 130
    assert "The same command makes the runs that are missing." in capsys.readouterr().err
    tidied: list[str] = []

    def ask_twice(_: object) -> None:
        try:
            os.kill(os.getpid(), signal.SIGTERM)
        finally:
            os.kill(os.getpid(), signal.SIGHUP)  # as the end of a session of systemd
            tidied.append("all")

    launcher.on_launch = ask_twice
    assert run("compare", "--workers", "1") == 130
    assert tidied == ["all"]
    assert "a first look and a gate begin anew" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("model", "told"),
    [
        (
            "GPT-2-small",
            "GPT-2-small: 196 trainable variables, 497.8 MB; largest tokens with 154.4",
        ),
        ("Tensors-4-80KB", "Tensors-4-80KB: 4 trainable variables, 80.0 kB; largest tensor_0 with"),
    ],
)
def test_weights_alone_are_placed_without_tensorflow(
    model: str, told: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delattr(surroundings, "this_machine")
    assert run("placement", "--model", model, "--num-ps", "2") == 0
    assert capsys.readouterr().out.startswith(told)


@pytest.mark.usefixtures("launcher")
def test_of_text_examples_and_tokens_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("compare", "--model", "SmallGPT", "--workers", "1", "--repetitions", "1") == 0
    said = capsys.readouterr()
    assert ": 320.0 examples/s (40960 tokens/s)\n" in said.err
    assert "image" not in said.out + said.err


def test_all_names_of_models_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("models") == 0
    lines = capsys.readouterr().out.splitlines()
    listed = {line.split()[0] for line in lines if re.match("  [^ ]", line)}
    others = {"TwoTower-RxW", "Tensors-N-xMB", "InceptionV3/32", "mine.py:build,"}
    assert listed == {*ARCHITECTURES, *TEXT_MODELS, *RECOMMENDERS, *PUBLISHED, *others}
    assert "  Xception            71  299" in lines
    assert "  BERT-base          438  199" in lines


def test_a_sweep_on_gpus_is_launched_on_gpus(launcher: FakeLauncher) -> None:
    assert run("compare", "--device", "gpu", "--repetitions", "1", "--workers", "1,2") == 0
    assert len(launcher.launched) > 5
    assert {point.resources.device for point in launcher.launched} == {Device.GPU}


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
    assert "6 points, 18 runs and more of the main comparison as time allows, about 5 min" in told
    assert "  allreduce, SmallCNN, 1 worker" in told
    assert launcher.launched == []
    assert not (tmp_path / "results").exists()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--emulate", "0.2,0.4"], ""),
        (
            ["--emulate", "0.4,0.8", "--workers", "2,3", "--worker-factors", "2:10"],
            " points will time out: warm-up and measured steps of",
        ),
    ],
)
def test_a_dry_run_tells_what_no_run_can_measure_in_time(
    launcher: FakeLauncher, capsys: pytest.CaptureFixture[str], words: list[str], told: str
) -> None:
    launcher.num_hosts = 2
    assert run("allreduce-sweep", "--dry-run", *words) == 0
    err = " ".join(capsys.readouterr().err.split())
    assert (told in err) if told else ("time out" not in err)


@pytest.mark.parametrize(
    "words",
    [
        ["--emulate", "0.4,0.8", "--worker-factors", "0:10"],
        ["--emulate", "8,16"],
        ["--emulate", "0.01,0.02", *EMULATED[:4], "--bandwidth", "4kbit"],
    ],
)
def test_a_sweep_of_which_every_exchange_would_time_out_is_refused(
    launcher: FakeLauncher, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    launcher.num_hosts = 2
    assert run("allreduce-sweep", *words) == 2
    told = "every point in which workers exchange gradients would time out: warm-up and measured"
    assert told in capsys.readouterr().err
    assert launcher.launched == []


def test_a_side_of_which_no_point_fits_is_told(
    launcher: FakeLauncher, capsys: pytest.CaptureFixture[str]
) -> None:
    launcher.num_hosts = 4
    words = ["--workers", "4", "--layout", "dedicated", "--dry-run"]
    assert run("compare", *EMULATED[:2], "--hosts", "4", "--bandwidth", "1gbit", *words) == 0
    told = "No point with parameter servers is left, so it is compared with nothing.\n"
    assert told in capsys.readouterr().err


@pytest.mark.usefixtures("launcher")
def test_a_dry_run_tells_that_results_cannot_be_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "taken").write_text("")
    words = ["--results", str(tmp_path / "taken"), "--dry-run"]
    assert run("allreduce-sweep", "--workers", "1", *words) == 2
    assert "is no folder" in capsys.readouterr().err


@pytest.mark.usefixtures("launcher")
def test_a_folder_that_cannot_be_written_is_told_before_images_are_made(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(settle, "write_samples")
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "storage").write_text("")
    assert run("storage", "--launcher", "local") == 2
    assert "storage is no folder" in capsys.readouterr().err


def test_a_jobs_end_makes_status_1_and_says_how_to_go_on(
    launcher: FakeLauncher, capsys: pytest.CaptureFixture[str]
) -> None:
    launcher.time_left = lambda: 30.0
    assert run("allreduce-sweep", "--workers", "1") == 1
    assert "The job's time is up" in capsys.readouterr().err
    assert launcher.launched == []


def test_a_sweep_goes_on_with_the_choices_that_it_began_with(
    launcher: FakeLauncher, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("compare", "--repetitions", "1") == 0
    definition = json.loads((tmp_path / "results" / "compare" / "sweep.json").read_text())
    assert definition["choices"]["cores per worker"] == 2
    assert definition["choices"]["numbers of workers"] == [1, 2]
    launcher.cores_per_host, before = 64, len(launcher.launched)
    assert run("compare", "--repetitions", "1") == 0
    assert len(launcher.launched) == before
    capsys.readouterr()
    assert run("compare", "--repetitions", "3") == 0
    assert (
        f"{2 * before} runs made ({2 * before} ok), {before} were made before"
        in capsys.readouterr().err
    )


@pytest.mark.parametrize(
    ("words", "steps"),
    [
        (("compare",), 0),
        (("compare", "--traced-steps", "3"), 3),
        (("timeline",), 6),
        (("timeline", "--traced-steps", "0"), 0),
    ],
)
def test_as_many_steps_are_traced_as_are_stated(
    words: tuple[str, ...], steps: int, launcher: FakeLauncher
) -> None:
    assert run(*words, "--workers", "1", "--repetitions", "1") == 0
    measured = {point.measurement for point in launcher.launched}
    assert {each.event_steps for each in measured if isinstance(each, Measurement)} == {steps}


@pytest.mark.parametrize(
    ("words", "warmup"),
    [
        ((), QUICK_WARMUP),
        (("--warmup-steps", "20"), FixedWarmup(least_steps=20, least_s=0.0)),
        (("--warmup-s", "2.5"), FixedWarmup(least_steps=1, least_s=2.5)),
        (
            ("--warmup-steps", "10", "--warmup-s", "5", "--profile", "standard"),
            FixedWarmup(least_steps=10, least_s=5.0),
        ),
    ],
)
def test_a_stated_length_makes_the_warm_up_a_fixed_one(
    words: tuple[str, ...], warmup: SteadyWarmup | FixedWarmup, launcher: FakeLauncher
) -> None:
    assert run("compare", "--workers", "1", "--repetitions", "1", *words) == 0
    assert run("run-one", "--strategy", "single", *words) == 0
    measured = {point.measurement for point in launcher.launched}
    assert {each.warmup for each in measured if isinstance(each, Measurement)} == {warmup}
