"""`--device` reaches every point, and is refused where it makes no sense."""

from __future__ import annotations

import pytest

from experiments.studies.catalogue import STUDIES
from ps_allreduce.point.experiment import Collective, Device
from tests.experiments.conftest import Machine, run
from tests.experiments.studies.test_studies import request as make_request
from tests.fakes import FakeLauncher


@pytest.mark.parametrize("name", STUDIES)
@pytest.mark.parametrize("device", Device)
def test_all_points_of_a_study_are_on_the_device(name: str, device: Device) -> None:
    points = STUDIES[name](make_request(device=device))
    assert {point.resources.device for point in points} == {device}


def test_a_sweep_on_gpus_is_launched_on_gpus(launcher: FakeLauncher, machine: Machine) -> None:
    assert run("compare", "--device", "gpu", "--repetitions", "1", "--workers", "1,2") == 0
    assert len(launcher.launched) > 5
    assert {point.resources.device for point in launcher.launched} == {Device.GPU}


def test_without_a_word_workers_compute_on_processors(
    launcher: FakeLauncher, machine: Machine
) -> None:
    assert run("run-one", "--strategy", "single") == 0
    assert launcher.launched[0].resources.device is Device.CPU


def test_nccl_is_for_gpus(
    launcher: FakeLauncher, machine: Machine, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("run-one", "--strategy", "allreduce", "--num-workers", "2", "--collective", "nccl")
    assert run(*words) == 2
    assert "collective nccl needs workers on GPUs" in capsys.readouterr().err
    assert run(*words, "--device", "gpu") == 0
    assert launcher.launched[0].collective is Collective.NCCL


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--device", "tpu"), "unknown device 'tpu'; choose one of cpu, gpu."),
        (
            ("--device", "gpu", "--emulate", "0.02,0.04"),
            "--emulate stands in for an accelerator: leave --device gpu out.",
        ),
    ],
)
def test_what_makes_no_sense_is_refused(
    words: tuple[str, ...], told: str, launcher: FakeLauncher, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("compare", *words) == 2
    assert told in capsys.readouterr().err
