"""The emulation check from the command line: which scales are tried, and what is said of them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest

from experiments import surroundings
from experiments.suite import emulation_check
from launchers.sites.emulated.emulated_site import Flows
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.layout import num_hosts
from ps_allreduce.point.models.trained import ImageModel
from ps_allreduce.point.models.weights import TensorSet
from ps_allreduce.point.network import EmulatedNetwork
from ps_allreduce.point.strategies import STRATEGIES, Hybrid
from ps_allreduce.record.files import iter_record_paths
from ps_allreduce.record.records import PortRecord, Status
from tests.experiments.conftest import Machine, run
from tests.fakes import METRICS, FakeLauncher, bad_run, ok_run

WORDS = ("emulation-check", "--hosts", "3", "--bandwidth", "1gbit", "--repetitions", "2")


def bursts(launcher: FakeLauncher) -> list[Experiment]:
    """The points that only communicate, of every launch."""
    return [point for point in launcher.launched if isinstance(point.workload.model, TensorSet)]


def scaled(launcher: FakeLauncher) -> list[Experiment]:
    """The points of which time is slowed down, of every launch."""
    return [point for point in launcher.launched if isinstance(point.workload.model, ImageModel)]


def rates(points: Iterable[Experiment]) -> list[float]:
    """Of the links."""
    networks = [point.network for point in points]
    return [network.bits_per_s or 0.0 for network in networks if network is not None]


@pytest.fixture
def exact(
    launcher: FakeLauncher, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> FakeLauncher:
    """A launcher whose steps take as long as they should at 500 Mbit/s and below."""

    def launch(experiment: Experiment) -> None:
        network = experiment.network
        assert network is not None
        step_s = 1e8 / max(5e8, network.bits_per_s or 0.0)
        step_s = 1e8 / (network.bits_per_s or 0.0) + (0.02 if step_s < 0.2 else 0.0)
        metrics = replace(METRICS, step_time_p50_s=step_s)
        model = experiment.workload.model
        size = model.num_bytes if isinstance(model, TensorSet) else 9_000_000
        lost = 5 * (experiment.strategy.kind == "ps_async" and experiment.num_workers == 3)
        ports = (PortRecord(host="n9", dropped=lost if size == 25_000_000 else 0),)
        launcher.script.append(ok_run(metrics=metrics, gradient_bytes=size, ports=ports))

    launcher.num_hosts = 3
    launcher.on_launch = launch
    flows = [Flows(senders=1, bits_per_s=9.5e8, dropped=0)]
    flows.append(Flows(senders=2, bits_per_s=9e8, dropped=3))
    monkeypatch.setattr(surroundings, "flows_of", lambda _: flows)
    return launcher


@pytest.fixture
def brief(monkeypatch: pytest.MonkeyPatch) -> None:
    """Gradients of points that only communicate have one size."""
    monkeypatch.setattr(emulation_check, "SIZES", (25_000_000,))


def test_rates_are_halved_until_two_agree(
    exact: FakeLauncher, brief: None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*WORDS) == 0
    # Two points, two launches.
    assert Counter(rates(scaled(exact))) == dict.fromkeys((1e9, 5e8, 2.5e8), 4)
    out = capsys.readouterr().out
    assert "ps_sync, 3 hosts: emulation can be trusted within 3% up to 500mbit" in out
    envelope = json.loads(Path("results/emulation-check/envelope.json").read_text())
    judged = [row for row in envelope if row["num_pairs"]]
    assert [(row["strategy"], row["bits_per_s"], row["holds"]) for row in judged] == [
        ("allreduce", 1e9, False),
        ("allreduce", 5e8, True),
        ("ps_sync", 1e9, False),
        ("ps_sync", 5e8, True),
    ]


@pytest.mark.usefixtures("brief")
def test_a_second_call_needs_no_run(exact: FakeLauncher) -> None:
    made = []
    for _ in range(2):
        assert run(*WORDS) == 0
        made.append(len(scaled(exact)))
    assert made == [12, 12]
    assert len(bursts(exact)) == len(set(bursts(exact)))


def test_scales_take_turns_and_durations_grow_as_rates_fall(
    exact: FakeLauncher, brief: None
) -> None:
    assert run(*WORDS) == 0
    first, second = rates(scaled(exact))[:4], rates(scaled(exact))[4:8]
    assert sorted(first) == sorted(second) == [5e8, 5e8, 1e9, 1e9]
    for point in scaled(exact):
        assert point.network is not None
        assert point.num_workers + point.num_ps == 3
        emulated = point.workload.emulated
        assert emulated is not None
        assert emulated.forward_s == 0.04 * 1e9 / (point.network.bits_per_s or 1)
        whole = EmulatedNetwork(num_hosts=3, bits_per_s=1e9)
        assert point.network == whole.scaled((point.network.bits_per_s or 0.0) / 1e9)


def test_every_strategy_bursts_at_the_whole_rate_on_two_hosts_and_on_all(
    exact: FakeLauncher, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*WORDS) == 0
    points = bursts(exact)
    assert set(rates(points)) == {1e9}
    able = {own for own in STRATEGIES.values() if own.communicates() and own.module is None}
    kinds = [own.kind for own in able - {Hybrid}]
    sizes = (2_500_000, 25_000_000, 100_000_000)
    assert Counter((p.strategy.kind, p.num_workers, num_bytes(p)) for p in points) == Counter(
        product(kinds, (2, 3), sizes)
    )
    for point in points:
        assert point.num_ps in (0, point.num_workers)
        assert num_hosts(point) == point.num_workers
    out = capsys.readouterr().out
    assert ["plain", "TCP", "3", "-", "1gbit"] in [line.split()[:5] for line in out.splitlines()]
    assert "plain TCP, 3 hosts: ports lost 3 packets at 1gbit" in out
    assert "ps_async, 3 hosts: ports lost 5 packets with 25 MB of gradients at 1gbit" in out


def num_bytes(point: Experiment) -> int:
    """Of the gradients of a point that only communicates."""
    assert isinstance(point.workload.model, TensorSet)
    return point.workload.model.num_bytes


def test_a_check_that_is_asked_to_end_records_its_run_and_makes_status_130(
    launcher: FakeLauncher,
) -> None:
    launcher.num_hosts = 3
    launcher.script = [ok_run(), bad_run(Status.INTERRUPTED)]
    assert run(*WORDS) == 130
    assert len(list(iter_record_paths(Path("results/emulation-check")))) == 2
