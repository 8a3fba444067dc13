"""Runs on emulated hosts: shaped links, real sockets, and nothing left whatever happens."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from launchers.protocol import LaunchedRun
from launchers.run.launcher import HostsLauncher
from launchers.sites.emulated.held_network import hold_network
from launchers.sites.emulated.site import EmulatedSite
from ps_allreduce.errors import SuiteError, UserError
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.network import EmulatedNetwork
from ps_allreduce.point.spread import LayoutKind, Spread
from ps_allreduce.point.strategies import (
    AllReduce,
    AnyStrategy,
    NoCommunication,
    SynchronousServers,
)
from ps_allreduce.point.workload import EmulatedCompute, Workload
from ps_allreduce.record.files import iter_record_paths, load_record
from ps_allreduce.record.provenance import ROOT
from ps_allreduce.record.records import RunRecord, Status
from tests.conftest import skip_or_fail
from tests.real.points import BRIEF, point

pytestmark = [
    pytest.mark.tensorflow,
    pytest.mark.slow,
    pytest.mark.usefixtures("need_tensorflow", "namespaces"),
]

#: Seconds of any run.
DEADLINE_S = 90.0


def launch(
    launcher: HostsLauncher,
    experiment: Experiment,
    progress: Callable[[str], None] = lambda _: None,
) -> LaunchedRun:
    return launcher.launch(experiment, deadline_s=DEADLINE_S, progress=progress)


NETWORK = EmulatedNetwork(num_hosts=4, bits_per_s=200e6, slow_host=3, slow_bits_per_s=50e6, racks=2)

#: Its gradients take 18 ms at 200 Mbit/s, far longer than anything else in a step.
WORKLOAD = Workload(emulated=EmulatedCompute(forward_s=0.001, backward_s=0.001))


@pytest.fixture(scope="module")
def namespaces() -> None:
    try:
        with hold_network(EmulatedNetwork(num_hosts=1, bits_per_s=None), ["one"]):
            pass
    except SuiteError as error:
        skip_or_fail(str(error))


@pytest.fixture(scope="module")
def launcher(data_dir: Path, namespaces: None) -> Iterator[HostsLauncher]:
    with HostsLauncher(EmulatedSite(NETWORK), data_dir) as launcher:
        yield launcher


def emulated(strategy: type[AnyStrategy], workers: int, **changes: Any) -> Experiment:
    shared = {"launcher": "emulated", "network": NETWORK, "spread": Spread(), "workload": WORKLOAD}
    served = {"num_ps": 1} if strategy.uses_servers else {}
    return point(strategy, workers, **(shared | served | changes))


@pytest.mark.timed
def test_all_reduce_crosses_links_of_the_stated_rate(launcher: HostsLauncher) -> None:
    run = launch(launcher, emulated(AllReduce, 2))
    assert run.status is Status.OK, f"{run.reason}\n{run.log[-2000:]}"
    assert [host.name for host in run.hosts] == ["emulated0", "emulated1"]
    assert [host.interface.name for host in run.hosts if host.interface] == ["eth0", "eth0"]
    assert {task.task: task.host for task in run.tasks} == {
        "worker:0": "emulated0",
        "worker:1": "emulated1",
    }
    for link in run.links:
        assert 0.5 * 200e6 < link.bits_per_s < 1.1 * 200e6
    assert run.metrics is not None
    assert run.gradient_bytes is not None
    # No faster than the link: gradients cross it once per step and direction.
    assert run.metrics.step_time_p50_s > run.gradient_bytes * 8 / 220e6
    assert run.machine_busy is not None


def test_dedicated_servers_have_hosts_of_their_own(launcher: HostsLauncher) -> None:
    dedicated = emulated(SynchronousServers, 2, layout=LayoutKind.DEDICATED)
    run = launch(launcher, dedicated)
    assert run.status is Status.OK, f"{run.reason}\n{run.log[-2000:]}"
    hosts = {task.task: task.host for task in run.tasks}
    assert hosts["ps:0"] == "emulated2"
    assert hosts["chief:0"] == hosts["worker:0"] == "emulated0"


@pytest.mark.timed
def test_the_slow_host_is_measured(launcher: HostsLauncher) -> None:
    # Workers that do not wait for each other need some steps for a window that all are in.
    measurement = replace(BRIEF, measured_steps=200)
    apart = emulated(NoCommunication, 4, measurement=measurement)
    run = launch(launcher, apart)
    assert run.status is Status.OK, f"{run.reason}\n{run.log[-2000:]}"
    rates = {(link.source, link.target): link.bits_per_s for link in run.links}
    for source, target in rates:
        stated = 50e6 if "emulated3" in (source, target) else 200e6
        # Other work on this machine slows links down; nothing makes them faster.
        assert 0.5 * stated < rates[source, target] < 1.1 * stated


def test_a_killed_task_is_named_with_its_host_still_there(launcher: HostsLauncher) -> None:
    long = emulated(SynchronousServers, 2, measurement=replace(BRIEF, measured_s=60.0))

    def kill_when_measuring(stage: str) -> None:
        if stage == "measured":
            for process in psutil.Process().children(recursive=True):
                if _log_of(process.pid).endswith("/worker-1.log"):
                    os.kill(process.pid, signal.SIGKILL)

    run = launch(launcher, long, kill_when_measuring)
    assert (run.status, run.reason) == (Status.FAILED, "worker:1 was killed by SIGKILL")
    again = launch(launcher, emulated(AllReduce, 2))
    assert again.status is Status.OK, again.reason


def _log_of(pid: int) -> str:
    try:
        return os.readlink(f"/proc/{pid}/fd/1")
    except OSError:
        return ""


def test_what_does_not_belong_together_is_refused(launcher: HostsLauncher) -> None:
    with pytest.raises(UserError, match="5 hosts are needed but there are 4"):
        launcher.check(emulated(AllReduce, 5))
    delayed = replace(NETWORK, delay_s=0.001)
    if not Path("/sys/module/sch_netem").exists():
        with pytest.raises(UserError, match="sch_netem"), EmulatedSite(delayed):
            pass


def _suite(results: Path) -> list[str]:
    arguments = ["--hosts", "2", "--bandwidth", "200mbit", "--num-workers", "2"]
    strategy = ["--strategy", "allreduce", "--allow-login-node"]
    suite = [sys.executable, "-m", "experiments", "run-one", "--launcher", "emulated"]
    return [*suite, "--results", str(results), *strategy, *arguments]


def _records(results: Path) -> list[RunRecord]:
    return [load_record(path) for path in iter_record_paths(results / "run-one")]


def _family(pid: int) -> list[psutil.Process]:
    return [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_nothing_is_left_of_a_suite_that_is_ended(number: signal.Signals, tmp_path: Path) -> None:
    said = tmp_path / "said"
    with said.open("wb") as output:
        suite = subprocess.Popen(
            _suite(tmp_path),
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
            stdout=output,
            stderr=output,
        )
    deadline = time.monotonic() + 120
    while not (tmp_path / "run-one" / "in_flight.json").exists():
        assert time.monotonic() < deadline, said.read_text()
        assert suite.poll() is None, said.read_text()
        time.sleep(0.1)
    time.sleep(4)
    family = _family(suite.pid)
    suite.send_signal(number)
    suite.wait(60)
    _, alive = psutil.wait_procs(family, timeout=20)
    assert alive == []
    if number is signal.SIGINT:
        assert [r.status for r in _records(tmp_path)] == [Status.INTERRUPTED]
        return
    done = subprocess.run(
        _suite(tmp_path),
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        check=False,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0, done.stderr
    found = _records(tmp_path)
    assert sum(r.status is Status.OK for r in found) == 1
    lost = [r for r in found if r.status is Status.INTERRUPTED]
    assert [r.reason for r in lost] == ["the suite ended during this run"]
