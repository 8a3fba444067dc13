"""This machine as a site: with the real fork server, and tasks that only pretend to train."""

from __future__ import annotations

import os
import resource
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import pytest

from launchers.fork_servers.client import ForkServerClient
from launchers.processes import start_with_socket
from launchers.run import follow
from launchers.run.conclude import LaunchedRun
from launchers.run.launcher import Capacity, HostsLauncher
from launchers.sites.emulated.emulated_site import EmulatedSite
from launchers.sites.emulated.held_network import EmulatedHost, HeldNetwork, Holder, encode
from launchers.sites.local import LocalForkServer, LocalSite
from ps_allreduce.errors import HostFault, UserError
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.network import EmulatedNetwork
from ps_allreduce.point.resources import Device, Resources, Spread
from ps_allreduce.point.strategies import AllReduce, Single
from ps_allreduce.record.provenance import default_congestion
from ps_allreduce.record.records import Status
from tests.cluster import launch_tasks
from tests.fakes import make_experiment
from tests.pretend import (
    FAKE_SERVER,
    FOREVER,
    GOOD,
    SHORT,
    WAIT,
    pretending_server,
)
from tests.talk import assert_gone

REDUCED = make_experiment(AllReduce, measurement=SHORT)


@pytest.fixture(scope="module")
def site(folder: Path) -> LocalSite:
    return LocalSite(pretending_server(folder))


@pytest.fixture(scope="module")
def launcher(folder: Path, site: LocalSite) -> Iterator[HostsLauncher]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(follow, "GRACE_S", 0.1)
        with HostsLauncher(site, folder) as launcher:
            yield launcher


Launch = Callable[..., LaunchedRun]


@pytest.fixture
def launch(launcher: HostsLauncher, folder: Path) -> Launch:
    def launch(code: str, experiment: Experiment = REDUCED, **more: Any) -> LaunchedRun:
        return launch_tasks(launcher, folder, code, experiment, **more)

    return launch


def test_tasks_hide_accelerators_and_a_single_worker_has_no_cluster(launch: Launch) -> None:
    code = "assert os.environ['CUDA_VISIBLE_DEVICES'] == ''\n"
    code += "assert os.environ['TF_GRPC_REUSE_PORT'] == 'true'\n"
    assert launch(code + GOOD).reason == ""
    single = make_experiment(Single, measurement=SHORT)
    assert launch("assert request.tf_config == ''\n" + GOOD, single).status is Status.OK


def test_what_changes_computation_travels_with_every_task(
    launch: Launch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NVIDIA_TF32_OVERRIDE", "0")  # after the fork server has been started
    assert launch("assert os.environ['NVIDIA_TF32_OVERRIDE'] == '0'\n" + GOOD).reason == ""


def test_only_the_first_driver_saves_weights(launch: Launch, tmp_path: Path) -> None:
    code = (
        "assert (request.weights is not None) == (name == 'worker:0')\n"
        "if request.weights: open(request.weights, 'wb').write(b'weights of ' + name.encode())\n"
    )
    assert launch(code + GOOD, weights=tmp_path / "weights.npz").reason == ""
    assert (tmp_path / "weights.npz").read_bytes() == b"weights of worker:0"
    assert launch("assert request.weights is None\n" + GOOD).reason == ""


def test_weights_that_cannot_be_written_cost_no_run(launch: Launch, tmp_path: Path) -> None:
    code = "if request.weights: open(request.weights, 'wb').write(b'weights')\n" + GOOD
    run = launch(code, weights=tmp_path / "gone" / "weights.npz")
    assert run.status is Status.OK
    assert "could not be written" in run.warnings[0]


def test_the_only_host_is_this_one_over_loopback(launch: Launch) -> None:
    run = launch(GOOD)
    (host,) = run.hosts
    assert (host.name, host.facts.name) == (socket.gethostname(), socket.gethostname())
    assert (host.address, host.clock_offset_s) == ("127.0.0.1", 0.0)
    assert host.interface is not None
    assert host.interface.name == "lo"
    assert all(task.address.startswith("127.0.0.1:") for task in run.tasks)
    assert (run.links, run.machine_busy, run.job_id) == ((), None, None)


def test_a_port_that_was_taken_in_spite_of_all_is_a_fault_of_the_host(launch: Launch) -> None:
    run = launch("raise RuntimeError('Address already in use')")
    assert run.status is Status.INTERRUPTED
    assert "Address already in use" in run.host_fault == run.reason


def test_a_host_without_room_for_a_run_is_a_fault_of_the_host(
    launch: Launch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
    run = launch(GOOD)
    assert (run.status, run.host_fault) == (Status.INTERRUPTED, run.reason)
    assert (
        run.reason == f"no folder can be made in {tmp_path / 'gone'} (No such file or directory)."
    )


def test_this_machines_congestion_control_counts_over_loopback_only(
    launcher: HostsLauncher, tmp_path: Path
) -> None:
    assert launcher.congestion == default_congestion() != ""
    emulated = EmulatedSite(EmulatedNetwork(num_hosts=2, bits_per_s=None))
    assert HostsLauncher(emulated, tmp_path).congestion == ""


def test_one_fork_server_serves_all_runs(launch: Launch, folder: Path, site: LocalSite) -> None:
    with site.servers({}, None) as servers:
        (client,) = servers.clients.values()
    for _ in range(2):
        launch("open(f'{out}/parent', 'w').write(str(os.getppid()))\n" + GOOD)
        assert int((folder / "parent").read_text()) == client.ready.pid


def test_what_does_not_fit_on_this_host_is_refused_before_anything_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    launcher = HostsLauncher(LocalSite(), tmp_path)
    with pytest.raises(UserError, match="the launcher local has one host"):
        launcher.check(make_experiment(spread=Spread()))
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {4})
    launcher.check(make_experiment(Single))
    with pytest.raises(UserError, match=f"2 x 1 cores are needed but host {socket.gethostname()}"):
        launcher.check(make_experiment(AllReduce))
    assert launcher.capacity() == Capacity(num_hosts=1, cores_per_host=1)


def test_leaving_removes_everything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    site = LocalSite(FAKE_SERVER)
    with HostsLauncher(site, tmp_path), site.servers({}, None) as servers:
        (client,) = servers.clients.values()
        assert Path(client.ready.scratch).parent == tmp_path / "tmp"
    assert_gone([client.ready.pid])
    assert list((tmp_path / "tmp").iterdir()) == []


@pytest.mark.parametrize(
    "enter",
    [
        pytest.param(lambda folder: HostsLauncher(LocalSite(), folder).__enter__(), id="launcher"),
        pytest.param(
            lambda _: EmulatedSite(EmulatedNetwork(num_hosts=2, bits_per_s=1e9)).__enter__(),
            id="is asked whether there can be hosts",
        ),
    ],
)
def test_a_machine_without_room_for_temporary_files_says_so(
    enter: Callable[[Path], object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", None)  # as in a process that has asked for none yet
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, limits[1]))  # nothing can be written anywhere
    try:
        with pytest.raises(
            HostFault, match=r"No usable temporary directory .* make room there, or"
        ):
            enter(tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_an_interruption_while_tensorflow_is_imported_leaves_no_process(tmp_path: Path) -> None:
    code = "import os, sys, time; open(sys.argv[1], 'w').write(str(os.getpid())); time.sleep(600)"
    words = (sys.executable, "-c", code, str(tmp_path / "pid"))
    server = LocalForkServer(words, "n9")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ForkServerClient, "wait_ready", interrupt_when_there(tmp_path / "pid"))
        with pytest.raises(KeyboardInterrupt):
            server.client()
    assert_gone([int((tmp_path / "pid").read_text())])
    server.close()


def interrupt_when_there(path: Path) -> Callable[..., NoReturn]:
    def wait(*_: object) -> NoReturn:
        while not path.exists() or not path.read_text():
            time.sleep(0.01)
        raise KeyboardInterrupt

    return wait


@contextmanager
def held(_: EmulatedNetwork, names: Sequence[str]) -> Iterator[Holder]:
    """Hosts of a network that is no network, and a process that seems to hold it."""
    none = encode(HeldNetwork(dropped=(0,) * len(names)))
    wait = (
        "import socket, sys\n"
        "line = socket.socket(fileno=int(sys.argv[-1]))\n"
        f"while line.recv(1000): line.sendall({none!r})"
    )
    program = start_with_socket((sys.executable, "-S", "-c", wait), Path(os.devnull), {})
    hosts = [EmulatedHost(name=n, address="127.0.0.1", interface="lo", enter=()) for n in names]
    try:
        yield Holder(tuple(hosts), program)
    finally:
        program.end()


def test_a_network_whose_process_was_killed_ends_the_run_and_is_built_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("launchers.sites.emulated.emulated_site.hold_network", held)
    network = EmulatedNetwork(num_hosts=2, bits_per_s=None)
    experiment = replace(REDUCED, launcher="emulated", spread=Spread(), network=network)
    site = EmulatedSite(network, pretending_server(folder))

    def kill_holder(stage: str) -> None:
        if stage == "connected":
            site.holder.program.kill()

    with HostsLauncher(site, folder) as launcher:
        first = launch_tasks(launcher, folder, FOREVER + WAIT, experiment, kill_holder)
        assert (first.status, first.host_fault) == (Status.INTERRUPTED, first.reason)
        assert first.reason == "the emulated network's process has ended."
        assert_gone(int(path.read_text()) for path in folder.glob("*.pid"))
        assert launch_tasks(launcher, folder, GOOD, experiment).reason == ""
        site.holder.program.kill()
        assert launch_tasks(launcher, folder, GOOD, experiment).reason == ""


def test_this_machine_may_have_gpus_and_emulated_hosts_have_none() -> None:
    network = EmulatedNetwork(num_hosts=2, bits_per_s=1e9)
    emulated = make_experiment(AllReduce, launcher="emulated", spread=Spread(), network=network)
    on_gpu = Resources(device=Device.GPU)
    LocalSite().check(make_experiment(AllReduce, resources=on_gpu))
    EmulatedSite(network).check(emulated)
    with pytest.raises(UserError, match="emulated hosts have no GPUs; use the device cpu"):
        replace(emulated, resources=on_gpu)
