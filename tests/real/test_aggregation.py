"""Workers of one host that send as one: the same training, and fewer bytes on the links."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from launchers.run.launcher import HostsLauncher
from launchers.sites.emulated.held_network import hold_network
from launchers.sites.emulated.site import EmulatedSite
from ps_allreduce.errors import SuiteError
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.network import EmulatedNetwork
from ps_allreduce.point.placement import Policy
from ps_allreduce.point.spread import LayoutKind, Spread
from ps_allreduce.point.strategies import SynchronousServers
from ps_allreduce.point.wire import Wire
from ps_allreduce.point.workload import EmulatedCompute, Workload
from ps_allreduce.record.records import Status
from ps_allreduce.record.steps import Phase
from tests.cluster import LocalLauncher
from tests.conftest import skip_or_fail
from tests.real.gate import (
    TOLERANCE,
    difference_from_single,
)
from tests.real.points import BRIEF, launch, point

pytestmark = [pytest.mark.tensorflow, pytest.mark.usefixtures("need_tensorflow", "two_cores")]

WORKLOAD = Workload(batch_per_worker=8)


#: Three hosts: two of workers, two on each, and one of a server.
NETWORK = EmulatedNetwork(num_hosts=3, bits_per_s=200e6)


@pytest.fixture(scope="module")
def hosts(data_dir: Path) -> Iterator[HostsLauncher]:
    """The launcher of emulated hosts."""
    try:
        with hold_network(EmulatedNetwork(num_hosts=1, bits_per_s=None), ["one"]):
            pass
    except SuiteError as error:
        skip_or_fail(str(error))
    with HostsLauncher(EmulatedSite(NETWORK), data_dir) as launcher:
        yield launcher


def _on_one_host(workers: int, **changes: Any) -> Experiment:
    """The workers of the launcher `local` share one host."""
    settings: dict[str, Any] = {
        "placement": Policy.LARGEST_FIRST,
        "workload": WORKLOAD,
        "host_aggregation": True,
    }
    workers = changes.pop("num_workers", workers)
    return point(SynchronousServers, workers, **(settings | changes))


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
    "changes",
    [
        pytest.param({}, id="two workers"),
        pytest.param({"num_workers": 1}, id="one worker"),
        pytest.param({"workload": replace(WORKLOAD, accumulation=3)}, id="accumulated"),
        pytest.param({"wire": Wire(in_flight=1, cut_bytes=50_000)}, id="cut"),
    ],
)
def test_workers_of_one_host_train_like_one_with_the_whole_batch(
    changes: dict[str, Any], launcher: LocalLauncher, tmp_path: Path
) -> None:
    experiment = _on_one_host(2, **changes)
    assert difference_from_single(launcher, experiment, tmp_path, launcher) < TOLERANCE


def test_every_applied_mean_is_right_with_a_slow_worker(
    patched_launcher: Callable[[str], LocalLauncher], tmp_path: Path
) -> None:
    local = patched_launcher("slow_worker")
    experiment = _on_one_host(2)
    assert difference_from_single(local, experiment, tmp_path, local) < TOLERANCE


def test_the_gate_notices_what_gets_lost_on_the_way_to_the_leader(
    patched_launcher: Callable[[str], LocalLauncher], tmp_path: Path
) -> None:
    local = patched_launcher("lost_gradient")
    experiment = _on_one_host(2)
    assert difference_from_single(local, experiment, tmp_path, local) > 10 * TOLERANCE


@pytest.mark.slow
def test_workers_of_two_hosts_train_like_one_with_the_whole_batch(
    hosts: HostsLauncher, launcher: LocalLauncher, tmp_path: Path
) -> None:
    experiment = _on_two_hosts(host_aggregation=True)
    assert difference_from_single(hosts, experiment, tmp_path, launcher) < TOLERANCE


@pytest.mark.slow
def test_gradients_and_values_cross_a_hosts_link_once(hosts: HostsLauncher) -> None:
    together, apart = _bytes_per_step(hosts, True), _bytes_per_step(hosts, False)
    for host, bytes_together in together.items():
        # Between all hosts; the chief's own traffic, which does not shrink, is small.
        assert 0.45 < bytes_together / apart[host] < 0.6, host


def _bytes_per_step(hosts: HostsLauncher, host_aggregation: bool) -> dict[str, float]:
    """Bytes that left each host, per step of the measured window."""
    workload = Workload(emulated=EmulatedCompute(forward_s=0.001, backward_s=0.001))
    measurement = replace(BRIEF, measured_steps=50)
    run = launch(
        hosts,
        _on_two_hosts(
            host_aggregation=host_aggregation, workload=workload, measurement=measurement
        ),
    )
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
