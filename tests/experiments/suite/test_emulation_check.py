"""The emulation check: which scales are tried, when two agree, and what is said of them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest

from experiments import surroundings
from experiments.suite import emulation_check
from experiments.suite.emulation_check import (
    PLAIN_TCP,
    check_envelope,
    render_envelope,
    slowed_down,
)
from launchers.sites.emulated.emulated_site import Flows
from ps_allreduce.errors import UserError
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.layout import num_hosts
from ps_allreduce.point.models.trained import ImageModel
from ps_allreduce.point.models.weights import TensorSet
from ps_allreduce.point.network import EmulatedNetwork
from ps_allreduce.point.resources import Spread
from ps_allreduce.point.strategies import STRATEGIES, Hybrid
from ps_allreduce.point.workload import EmulatedCompute, Workload
from ps_allreduce.record.files import iter_record_paths
from ps_allreduce.record.records import LinkRecord, PortRecord, RunRecord, Status
from tests.analysis.builders import metrics, save_all
from tests.analysis.builders import run as made
from tests.experiments.conftest import Machine, run
from tests.fakes import METRICS, FakeLauncher, bad_run, make_experiment, ok_run

WORDS = ("emulation-check", "--hosts", "3", "--bandwidth", "1gbit", "--repetitions", "2")


def bursts(launcher: FakeLauncher) -> list[Experiment]:
    """The points that only communicate, of every launch."""
    return [point for point in launcher.launched if isinstance(point.workload.model, TensorSet)]


def scaled(launcher: FakeLauncher) -> list[Experiment]:
    """The points of which time is slowed down, of every launch."""
    return [point for point in launcher.launched if isinstance(point.workload.model, ImageModel)]


def rates(points: Iterable[Experiment]) -> list[float]:
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


def whole(num_hosts: int = 3) -> Experiment:
    return make_experiment(
        num_workers=num_hosts,
        launcher="emulated",
        spread=Spread(),
        network=EmulatedNetwork(num_hosts=num_hosts, bits_per_s=1e9),
        workload=Workload(emulated=EmulatedCompute(forward_s=0.04, backward_s=0.08)),
    )


def launches(point: Experiment, scale: int, step_s: Mapping[int, float]) -> list[RunRecord]:
    slow = slowed_down(point, scale)
    assert slow is not None
    return [
        made(slow, 1 / seconds, repetition, metrics=metrics(1 / seconds, step_time_p50_s=seconds))
        for repetition, seconds in step_s.items()
    ]


def test_twice_the_step_time_at_half_the_rate_is_perfect(tmp_path: Path) -> None:
    fast = launches(whole(), 1, {0: 0.1, 1: 0.2, 2: 0.4, 3: 1.0})
    slow = launches(whole(), 2, {0: 0.2, 1: 0.4, 2: 0.84})
    save_all(tmp_path / "emulation-check", fast, slow)
    found, half = check_envelope(tmp_path).to_dict("records")
    assert (found["ratio"], found["low"], found["num_pairs"]) == (1.0, 1.0, 3)
    assert found["high"] == pytest.approx(1.05)
    assert (found["bits_per_s"], found["num_hosts"], found["holds"]) == (1e9, 3, True)
    assert (half["bits_per_s"], half["num_pairs"], half["holds"]) == (5e8, 0, None)


def test_launches_are_pairs_where_they_were_made_in_turn(tmp_path: Path) -> None:
    fast = launches(whole(), 1, {0: 0.1, 1: 0.1, 2: 0.1})
    *slow, late = launches(whole(), 2, {0: 0.2, 1: 0.2, 2: 0.3})
    late = replace(late, started_at="2026-01-01T09:00:00Z", finished_at="2026-01-01T09:00:20Z")
    save_all(tmp_path / "emulation-check", fast, [*slow, late])
    found, _ = check_envelope(tmp_path).to_dict("records")
    assert (found["num_pairs"], found["high"]) == (2, 1.0)


def test_a_rate_that_was_tried_later_is_compared_by_repetition(tmp_path: Path) -> None:
    late = [
        replace(record, started_at=f"2026-01-01T09:0{record.repetition}:00Z")
        for record in launches(whole(), 2, {0: 0.2, 1: 0.2})
    ]
    save_all(tmp_path / "emulation-check", launches(whole(), 1, {0: 0.1, 1: 0.1}), late)
    found, _ = check_envelope(tmp_path).to_dict("records")
    assert (found["num_pairs"], found["ratio"]) == (2, 1.0)


@pytest.mark.parametrize(("ratio", "holds"), [(1.015, True), (0.96, False), (1.05, False)])
def test_the_envelope_is_the_highest_rate_that_held(
    ratio: float, holds: bool, tmp_path: Path
) -> None:
    folder = tmp_path / "emulation-check"
    three = [launches(whole(), scale, {0: time}) for scale, time in ((1, 0.1), (2, 0.18))]
    save_all(folder, *three, launches(whole(), 4, {0: 0.36 * ratio}))
    four = [launches(whole(4), scale, {0: 0.1 * scale}) for scale in (1, 2)]
    save_all(folder, *four)
    text = render_envelope(check_envelope(tmp_path))
    assert "0.900" in text[1]
    assert text[3].split()[:6] == ["ps_sync", "3", "0.0", "250mbit", "-", "-"]
    three_hosts = (
        "ps_sync, 3 hosts: emulation can be trusted within 3% up to 500mbit on this machine"
        if holds
        else "ps_sync, 3 hosts: emulation cannot be trusted at 500mbit or above on this machine"
    )
    assert text[6:] == [
        three_hosts,
        "ps_sync, 4 hosts: emulation can be trusted within 3% up to 1gbit on this machine",
    ]


def test_a_rate_above_one_that_did_not_hold_is_not_trusted(tmp_path: Path) -> None:
    times = {1: 0.1, 2: 0.2, 4: 0.42}
    save_all(
        tmp_path / "emulation-check", *(launches(whole(), n, {0: t}) for n, t in times.items())
    )
    assert "cannot be trusted at 500mbit or above" in render_envelope(check_envelope(tmp_path))[-1]


def test_slower_time_also_lets_tcp_wait_longer_and_keeps_the_bytes_of_ports() -> None:
    slow = slowed_down(whole(), 4)
    assert slow is not None
    assert slow.network == EmulatedNetwork(num_hosts=3, bits_per_s=2.5e8, rto_min_s=0.8)


def two_scales(*dropped: int | None) -> list[RunRecord]:
    """A launch at the whole rate for each number of packets that a port lost; None: unknown."""
    fast = launches(whole(), 1, dict.fromkeys(range(len(dropped)), 0.1))
    half = replace(launches(whole(), 2, {0: 0.2})[0], ports=(PortRecord(host="n1", dropped=0),))
    ports = [() if each is None else (PortRecord(host="n1", dropped=each),) for each in dropped]
    return [half, *(replace(f, ports=p) for f, p in zip(fast, ports, strict=True))]


@pytest.mark.parametrize(
    ("dropped", "lost", "said"),
    [
        ((0, 0), 0, "ports lost no packet with 0.0004 MB of gradients at 1gbit"),
        ((0, 7), 7, "ports lost 7 packets with 0.0004 MB of gradients at 1gbit"),
        ((0, None), None, "ports lost no packet with 0.0004 MB of gradients at 500mbit"),
    ],
)
def test_packets_that_ports_lost_are_added_up_and_named(
    dropped: tuple[int | None, ...], lost: int | None, said: str, tmp_path: Path
) -> None:
    save_all(tmp_path / "emulation-check", two_scales(*dropped))
    envelope = check_envelope(tmp_path)
    assert json.loads(envelope.to_json())["port_drops"]["0"] == lost
    trusted = "ps_sync, 3 hosts: emulation can be trusted within 3% up to 1gbit on this machine"
    assert render_envelope(envelope)[-1] == f"{trusted}; {said}"


def test_plain_tcp_stands_beside_training_and_is_judged_by_what_ports_lose(tmp_path: Path) -> None:
    points = [replace(each, links=(STREAM,)) for each in two_scales(0)]
    save_all(tmp_path / "emulation-check", points)
    plain = {"strategy": PLAIN_TCP, "bits_per_s": 1e9, "reached": 0.95, "num_pairs": 0}
    found = [{**plain, "num_hosts": n, "port_drops": n - 2} for n in (2, 4)]
    envelope = check_envelope(tmp_path, found)
    assert list(envelope["reached"]) == [0.95, 0.95, 0.5, 1.0]
    assert render_envelope(envelope)[-3:-1] == [
        "plain TCP, 2 hosts: ports lost no packet at 1gbit",
        "plain TCP, 4 hosts: ports lost 2 packets at 1gbit",
    ]


STREAM = LinkRecord(source="n1", target="n2", bits_per_s=5e8, round_trip_s=1e-3)


def test_one_scale_is_too_few(tmp_path: Path) -> None:
    save_all(tmp_path / "emulation-check", launches(whole(), 1, {0: 0.1}))
    with pytest.raises(UserError, match="no two scales of a point that both ended well"):
        check_envelope(tmp_path)
