"""Runs on emulated hosts: shaped links, real sockets, and nothing left whatever happens."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from launchers.run.launcher import HostsLauncher
from launchers.sites.emulated.emulated_site import EmulatedSite
from ps_allreduce.inspection.facts import others_s
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.network import EmulatedNetwork, Traffic
from ps_allreduce.point.resources import LayoutKind, Spread
from ps_allreduce.point.strategies import (
    AllReduce,
    AnyStrategy,
    Horovod,
    NoCommunication,
    StockServers,
    SynchronousServers,
)
from ps_allreduce.point.workload import EmulatedCompute, Workload
from ps_allreduce.record.files import iter_record_paths, load_record
from ps_allreduce.record.provenance import ROOT
from ps_allreduce.record.records import Status
from tests.conftest import need_module_of
from tests.real.machines import wait_until
from tests.real.points import (
    BRIEF,
    LONG,
    in_flight,
    launch,
    pid_of_log,
    point,
    when_measured,
)

pytestmark = [pytest.mark.tensorflow, pytest.mark.slow, pytest.mark.usefixtures("namespaces")]

#: On a busy machine.
PATIENCE_S = 120.0

NETWORK = EmulatedNetwork(num_hosts=4, bits_per_s=200e6, slow_host=3, slow_bits_per_s=50e6, racks=2)

#: Its gradients take 18 ms at 200 Mbit/s, far longer than anything else in a step.
WORKLOAD = Workload(emulated=EmulatedCompute(forward_s=0.001, backward_s=0.001))


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
        assert 0.9 * 200e6 < link.bits_per_s < 200e6
    assert run.metrics is not None
    assert run.gradient_bytes is not None
    # No faster than the link: gradients cross it once per step and direction.
    assert run.metrics.step_time_p50_s > run.gradient_bytes * 8 / 220e6
    assert run.machine_busy is not None
    # Both hosts are this machine.
    (foreign_load,) = {host.foreign_load for host in run.hosts}
    assert foreign_load is not None
    watching = {look.host for look in run.samples if look.others_s is not None}
    assert len(watching) == (others_s(Path("/proc"), ()) is not None)


def test_horovod_meets_and_sends_across_links(launcher: HostsLauncher) -> None:
    need_module_of(Horovod)
    spread = Spread(workers_per_host=2)
    run = launch(launcher, emulated(Horovod, 4, spread=spread))
    assert run.status is Status.OK, f"{run.reason}\n{run.log[-2000:]}"
    assert run.metrics is not None
    assert run.gradient_bytes is not None
    assert run.metrics.step_time_p50_s > run.gradient_bytes * 8 / 220e6


def test_dedicated_servers_have_hosts_of_their_own(launcher: HostsLauncher) -> None:
    dedicated = emulated(SynchronousServers, 2, layout=LayoutKind.DEDICATED)
    run = launch(launcher, dedicated)
    assert run.status is Status.OK, f"{run.reason}\n{run.log[-2000:]}"
    hosts = {task.task: task.host for task in run.tasks}
    assert hosts["ps:0"] == "emulated2"
    assert hosts["chief:0"] == hosts["worker:0"] == "emulated0"


def test_servers_as_shipped_send_their_values_although_nothing_is_computed(
    launcher: HostsLauncher,
) -> None:
    run = launch(launcher, emulated(StockServers, 1, layout=LayoutKind.DEDICATED))
    assert run.status is Status.OK, f"{run.reason}\n{run.log[-2000:]}"
    assert run.steps is not None
    assert run.gradient_bytes is not None
    # No faster than the link.
    assert np.median(run.steps.pulled - run.steps.start) > run.gradient_bytes * 8 / 220e6


@pytest.mark.timed
def test_the_slow_host_is_measured(launcher: HostsLauncher) -> None:
    # Workers that do not wait for each other need some steps for a window that all are in.
    measurement = replace(BRIEF, measured_steps=200)
    apart = emulated(NoCommunication, 4, measurement=measurement)
    run = launch(launcher, apart)
    assert run.status is Status.OK, f"{run.reason}\n{run.log[-2000:]}"
    for link in run.links:
        stated = 50e6 if "emulated3" in (link.source, link.target) else 200e6
        assert 0.9 * stated < link.bits_per_s < stated
        assert link.round_trip_s < 0.002


#: From a host without tasks, too.
BUSY = replace(
    NETWORK,
    traffic=(
        Traffic(bits_per_s=80e6, source=0, target=1),
        Traffic(bits_per_s=80e6, source=1, target=0),
        Traffic(bits_per_s=2e6, source=2, target=1),
    ),
)


@pytest.mark.timed
def test_background_traffic_takes_its_share_of_a_link(launcher: HostsLauncher) -> None:
    measurement = replace(BRIEF, measured_steps=60, measured_s=2.0)
    free = launch(launcher, emulated(AllReduce, 2, measurement=measurement))
    before = {process.pid for process in psutil.Process().children(recursive=True)}
    run = launch(launcher, emulated(AllReduce, 2, measurement=measurement, network=BUSY))
    assert run.status is Status.OK, f"{run.reason}\n{run.log[-2000:]}"
    left = [p for p in psutil.Process().children(recursive=True) if p.pid not in before]
    _, alive = psutil.wait_procs(left, timeout=10)
    assert alive == []
    assert [host.name for host in run.hosts] == ["emulated0", "emulated1"]
    # Datagrams do not give way, but on a busy machine the sender is late, which is told.
    carried = {(each.source, each.target): each.bits_per_s for each in run.traffic}
    pairs = [("emulated0", "emulated1"), ("emulated1", "emulated0")]
    slower = min(carried[pair] for pair in pairs)
    assert 0.2 * 80e6 < slower < 1.05 * 80e6
    assert slower > 0.9 * 80e6 or "traffic fell behind: from emulated" in " ".join(run.warnings)
    assert 0.2 * 2e6 < carried["emulated2", "emulated1"] < 1.2 * 2e6
    assert free.metrics is not None
    assert run.metrics is not None
    assert run.gradient_bytes is not None
    # Gradients get what is left of the link, and no less than that takes.
    assert run.metrics.step_time_p50_s > run.gradient_bytes * 8 / (1.1 * 200e6 - slower)
    assert run.metrics.step_time_p50_s > free.metrics.step_time_p50_s


def test_a_sender_that_ends_ends_the_run(launcher: HostsLauncher) -> None:
    def kill() -> None:
        os.kill(pid_of_log("traffic sender emulated0-emulated1.log"), signal.SIGKILL)

    long = emulated(AllReduce, 2, measurement=LONG, network=BUSY)
    run = launch(launcher, long, when_measured(kill))
    assert run.status is Status.FAILED
    assert run.reason.startswith("traffic sender emulated")
    assert run.reason.endswith("was killed by SIGKILL")


def test_nothing_is_left_of_a_suite_that_is_ended(tmp_path: Path) -> None:
    for number in (signal.SIGKILL, signal.SIGINT):
        end_in_the_middle(tmp_path, number)
    killed, interrupted = (load_record(path) for path in iter_record_paths(tmp_path / "run-one"))
    assert killed.status is interrupted.status is Status.INTERRUPTED
    assert killed.reason == "the suite ended during this run"
    assert interrupted.reason != killed.reason


def end_in_the_middle(results: Path, number: signal.Signals) -> None:
    """Start a run, end the suite while it is made, and see that all its processes end."""
    with started_suite(results) as suite:
        wait_until(
            lambda: in_flight(results / "run-one").get("pid") == suite.pid,
            PATIENCE_S,
            (results / "said").read_text,
        )
        time.sleep(4)  # well into the run
        family = family_of(suite.pid)
        suite.send_signal(number)
        suite.wait(PATIENCE_S)
        _, alive = psutil.wait_procs(family, timeout=20)
        assert alive == []


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGHUP])
def test_fork_servers_that_import_end_with_the_suite(
    number: signal.Signals, tmp_path: Path
) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    said = tmp_path / "said"
    with started_suite(tmp_path, TMPDIR=str(scratch)) as suite:
        # On each of two hosts one that imports, and what watches it.
        wait_until(lambda: len(servers_of(suite.pid)) >= 4, PATIENCE_S, said.read_text)
        time.sleep(0.5)
        family, pids = family_of(suite.pid), {server.pid for server in servers_of(suite.pid)}
        suite.send_signal(number)
        suite.wait(PATIENCE_S)
        _, alive = psutil.wait_procs(family, timeout=10)  # an import takes longer on a busy machine
        assert alive == []
    assert not [path for path in scratch.iterdir() if int(path.name.split("-")[2]) in pids]
    assert "Traceback" not in said.read_text()


@contextmanager
def started_suite(results: Path, **environment: str) -> Iterator[subprocess.Popen[bytes]]:
    """A long enough run of the command line; what it says goes to a file.

    It is ended with the block: other tests look for children of this process.
    """
    suite = [sys.executable, "-m", "experiments", "run-one", "--launcher", "emulated"]
    hosts = ["--hosts", "2", "--bandwidth", "200mbit", "--num-workers", "2"]
    options = ["--strategy", "allreduce", "--allow-login-node", "--results", str(results)]
    variables = os.environ | environment
    with (results / "said").open("wb") as said:
        process = subprocess.Popen(
            [*suite, *hosts, *options], cwd=ROOT, env=variables, stdout=said, stderr=said
        )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def family_of(pid: int) -> list[psutil.Process]:
    return [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]


def servers_of(pid: int) -> list[psutil.Process]:
    """Fork servers below a process; a program that is about to become one is none."""
    return [process for process in family_of(pid) if is_server(process)]


def is_server(process: psutil.Process) -> bool:
    """It is one; a process that has just ended is none."""
    try:
        words = process.cmdline()
        return "ps_allreduce.fork_server.server" in words and process.name() != "nsenter"
    except psutil.NoSuchProcess:
        return False
