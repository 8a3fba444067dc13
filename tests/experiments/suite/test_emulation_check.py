"""The emulation check from the command line: which scales are tried, and what is said of them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.network import EmulatedNetwork
from ps_allreduce.record.files import iter_record_paths
from ps_allreduce.record.records import Status
from tests.experiments.conftest import Machine, run
from tests.fakes import METRICS, FakeLauncher, bad_run, ok_run

WORDS = ("emulation-check", "--hosts", "3", "--bandwidth", "1gbit", "--repetitions", "2")


def rates(launcher: FakeLauncher) -> list[float]:
    """Of the links, of every launch."""
    networks = [point.network for point in launcher.launched]
    return [network.bits_per_s or 0.0 for network in networks if network is not None]


@pytest.fixture
def exact(launcher: FakeLauncher, machine: Machine) -> FakeLauncher:
    """A launcher whose steps take as long as they should at 500 Mbit/s and below."""

    def launch(experiment: Experiment) -> None:
        network = experiment.network
        assert network is not None
        step_s = 1e8 / max(5e8, network.bits_per_s or 0.0)
        step_s = 1e8 / (network.bits_per_s or 0.0) + (0.02 if step_s < 0.2 else 0.0)
        metrics = replace(METRICS, step_time_p50_s=step_s)
        launcher.script.append(ok_run(metrics=metrics))

    launcher.num_hosts = 3
    launcher.on_launch = launch
    return launcher


def test_rates_are_halved_until_two_agree(
    exact: FakeLauncher, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*WORDS) == 0
    # Two points, two launches.
    assert {rate: rates(exact).count(rate) for rate in rates(exact)} == dict.fromkeys(
        (1e9, 5e8, 2.5e8), 4
    )
    out = capsys.readouterr().out
    assert "ps_sync, 3 hosts: emulation can be trusted within 3% up to 500mbit" in out
    envelope = json.loads(Path("results/emulation-check/envelope.json").read_text())
    assert [(row["strategy"], row["bits_per_s"], row["holds"]) for row in envelope] == [
        ("allreduce", 1e9, False),
        ("allreduce", 5e8, True),
        ("ps_sync", 1e9, False),
        ("ps_sync", 5e8, True),
    ]


def test_a_second_call_needs_no_run(
    exact: FakeLauncher, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*WORDS) == run(*WORDS) == 0
    assert len(exact.launched) == 12


def test_scales_take_turns_and_durations_grow_as_rates_fall(exact: FakeLauncher) -> None:
    assert run(*WORDS) == 0
    first, second = rates(exact)[:4], rates(exact)[4:8]
    assert sorted(first) == sorted(second) == [5e8, 5e8, 1e9, 1e9]
    for point in exact.launched:
        assert point.network is not None
        assert point.num_workers + point.num_ps == 3
        emulated = point.workload.emulated
        assert emulated is not None
        assert emulated.forward_s == 0.04 * 1e9 / (point.network.bits_per_s or 1)
        assert point.network == replace(
            EmulatedNetwork(num_hosts=3, bits_per_s=1e9), bits_per_s=point.network.bits_per_s
        )


def test_a_check_that_is_asked_to_end_records_its_run_and_makes_status_130(
    launcher: FakeLauncher,
) -> None:
    launcher.num_hosts = 3
    launcher.script = [ok_run(), bad_run(Status.INTERRUPTED)]
    assert run(*WORDS) == 130
    assert len(list(iter_record_paths(Path("results/emulation-check")))) == 2


@pytest.mark.parametrize("words", [("--hosts", "3"), ("--hosts", "1", "--bandwidth", "1gbit")])
def test_a_rate_and_two_hosts_are_needed(
    words: tuple[str, ...], launcher: FakeLauncher, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("emulation-check", *words) == 2
    assert "with --bandwidth and 2 or more --hosts" in capsys.readouterr().err
