"""Workers of one host that send as one: the same training, and fewer bytes on the links."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from launchers.run.launcher import HostsLauncher
from launchers.sites.emulated.emulated_site import EmulatedSite
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.network import EmulatedNetwork
from ps_allreduce.point.placement import Policy
from ps_allreduce.point.resources import LayoutKind, Spread
from ps_allreduce.point.strategies import SynchronousServers
from ps_allreduce.point.wire import Wire
from ps_allreduce.point.workload import EmulatedCompute, Workload
from ps_allreduce.record.records import Status
from ps_allreduce.record.step_table import Phase
from tests.cluster import LocalLauncher
from tests.real.gate import TOLERANCE, Compare, Patched
from tests.real.points import BRIEF, launch, point

pytestmark = [pytest.mark.tensorflow, pytest.mark.usefixtures("two_cores")]

WORKLOAD = Workload(batch_per_worker=8)

#: Three hosts: two of workers, two on each, and one of a server.
NETWORK = EmulatedNetwork(num_hosts=3, bits_per_s=200e6)


@pytest.fixture(scope="module")
def hosts(data_dir: Path, namespaces: None) -> Iterator[HostsLauncher]:
    """The launcher of emulated hosts."""
    with HostsLauncher(EmulatedSite(NETWORK), data_dir) as launcher:
        yield launcher


def _on_one_host(workers: int = 2, **changes: Any) -> Experiment:
    """The workers of the launcher `local` share one host."""
    settings: dict[str, Any] = {"placement": Policy.LARGEST_FIRST, "workload": WORKLOAD}
    return point(SynchronousServers, workers, host_aggregation=True, **(settings | changes))


def _on_two_hosts(*, host_aggregation: bool, **changes: Any) -> Experiment:
    settings: dict[str, Any] = {
        "num_ps": 1,
        "layout": LayoutKind.DEDICATED,
        "launcher": "emulated",
        "network": NETWORK,
        "spread": Spread(workers_per_host=2),
        "workload": WORKLOAD,
        "host_aggregation": host_aggregation,
    }
    return point(SynchronousServers, 4, **(settings | changes))


@pytest.mark.parametrize(
    "experiment",
    [
        pytest.param(_on_one_host(), id="two workers"),
        pytest.param(_on_one_host(1), id="one worker"),
        pytest.param(_on_one_host(workload=replace(WORKLOAD, accumulation=3)), id="accumulated"),
        pytest.param(_on_one_host(wire=Wire(in_flight=1, cut_bytes=50_000)), id="cut"),
    ],
)
def test_workers_of_one_host_train_like_one_with_the_whole_batch(
    experiment: Experiment, launcher: LocalLauncher, difference_from_single: Compare
) -> None:
    assert difference_from_single(launcher, experiment) < TOLERANCE


def test_a_slow_worker_changes_no_mean_and_a_gradient_lost_before_the_leader_is_noticed(
    patched_launcher: Patched, difference_from_single: Compare
) -> None:
    slow = difference_from_single(patched_launcher("slow_worker"), _on_one_host())
    broken = difference_from_single(patched_launcher("lost_gradient"), _on_one_host())
    assert slow < TOLERANCE
    assert broken > 10 * TOLERANCE


@pytest.mark.slow
def test_workers_of_two_hosts_train_like_one_with_the_whole_batch(
    hosts: HostsLauncher, difference_from_single: Compare
) -> None:
    experiment = _on_two_hosts(host_aggregation=True)
    assert difference_from_single(hosts, experiment) < TOLERANCE


@pytest.mark.slow
def test_gradients_and_values_cross_a_hosts_link_once(hosts: HostsLauncher) -> None:
    together, apart = _bytes_per_step(hosts, True), _bytes_per_step(hosts, False)
    for host, bytes_together in together.items():
        # Between all hosts; the chief's own traffic, which does not shrink, is small.  On a busy
        # machine, samples are some steps late; anything else than once would be 0.25 or 1.
        assert 0.4 < bytes_together / apart[host] < 0.6, host


def _bytes_per_step(hosts: HostsLauncher, host_aggregation: bool) -> dict[str, float]:
    """Bytes that left each host, per step of the measured window."""
    experiment = _on_two_hosts(
        host_aggregation=host_aggregation,
        workload=Workload(emulated=EmulatedCompute(forward_s=0.001, backward_s=0.001)),
        measurement=replace(BRIEF, measured_steps=50),
    )
    run = launch(hosts, experiment)
    assert run.status is Status.OK, f"{run.reason}\n{run.log[-3000:]}"
    assert run.steps is not None
    ends = run.steps.end[run.steps.phase == Phase.MEASURED]
    sent: dict[str, float] = {}
    for host in {sample.host for sample in run.samples}:
        inside = [s for s in run.samples if s.host == host and ends.min() < s.time < ends.max()]
        first, last = inside[0], inside[-1]
        steps = np.count_nonzero((ends > first.time) & (ends <= last.time)) / 4
        sent[host] = (last.sent_bytes["eth0"] - first.sent_bytes["eth0"]) / steps
    return sent
