"""The local launcher with the real fork server and tasks that only pretend to train."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from launchers.protocol import LaunchedRun
from launchers.run import follow
from launchers.run.launcher import PORT_ATTEMPTS, HostsLauncher
from launchers.sites.local import LocalSite
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.strategies import AllReduce, Single
from ps_allreduce.record.records import Status
from tests.cluster import launch_tasks
from tests.fakes import make_experiment
from tests.pretend import (
    FOREVER,
    GOOD,
    SHORT,
    WAIT,
    pretending_server,
)

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


def test_a_run_that_goes_well_is_complete(launch: Launch) -> None:
    stages: list[str] = []
    run = launch(GOOD, progress=stages.append)
    assert (run.status, run.reason) == (Status.OK, "")
    assert run.metrics is not None
    assert run.steps is not None
    assert len(run.steps) == 10
    assert [task.task for task in run.tasks] == ["worker:0", "worker:1"]
    assert [task.exit for task in run.tasks] == [0, 0]
    assert [task.cores for task in run.tasks] == [(0,), (1,)]
    assert [task.gpus for task in run.tasks] == ["", ""]
    assert all(task.pid and task.cpu_s is not None for task in run.tasks)
    assert run.log == "==> worker:0 <==\ntrained\n\n==> worker:1 <==\ntrained\n"
    assert stages


def test_a_single_worker_has_no_cluster(launch: Launch) -> None:
    single = make_experiment(Single, measurement=SHORT)
    assert launch("assert request.tf_config == ''\n" + GOOD, single).status is Status.OK


def test_tasks_hide_accelerators_that_they_do_not_use(launch: Launch) -> None:
    code = "assert os.environ['CUDA_VISIBLE_DEVICES'] == ''\n" + GOOD
    code = "assert os.environ['TF_GRPC_REUSE_PORT'] == 'true'\n" + code
    assert launch(code).reason == ""


def test_only_the_first_driver_saves_weights(launch: Launch, tmp_path: Path) -> None:
    code = (
        "assert (request.weights is not None) == (name == 'worker:0')\n"
        "if request.weights: open(request.weights, 'wb').write(b'weights of ' + name.encode())\n"
    )
    assert launch(code + GOOD, weights=tmp_path / "weights.npz").reason == ""
    assert (tmp_path / "weights.npz").read_bytes() == b"weights of worker:0"


def test_weights_that_are_not_asked_for_are_not_made(launch: Launch) -> None:
    assert launch("assert request.weights is None\n" + GOOD).reason == ""


def test_the_only_host_is_this_one_over_loopback(launch: Launch) -> None:
    run = launch(GOOD)
    (host,) = run.hosts
    assert (host.name, host.facts.name) == (socket.gethostname(), socket.gethostname())
    assert (host.address, host.clock_offset_s) == ("127.0.0.1", 0.0)
    assert host.interface is not None
    assert host.interface.name == "lo"
    assert all(task.address.startswith("127.0.0.1:") for task in run.tasks)
    assert (run.links, run.machine_busy, run.job_id) == ((), None, None)


def test_a_killed_task_is_to_blame_before_those_that_complain(launch: Launch) -> None:
    code = (
        "import time\n"
        "if name == 'worker:0': raise RuntimeError('lost worker:1')\n"
        "time.sleep(0.05); os.kill(os.getpid(), 9)"
    )
    run = launch(code)
    assert (run.status, run.reason) == (Status.FAILED, "worker:1 was killed by SIGKILL")


def test_a_port_that_was_taken_is_replaced(launch: Launch, folder: Path) -> None:
    code = (
        "if name == 'worker:0' and not os.path.exists(f'{out}/tried'):\n"
        "    open(f'{out}/tried', 'w').close()\n"
        "    raise RuntimeError('Could not start gRPC server')\n"
    )
    stages: list[str] = []
    assert launch(code + GOOD, progress=stages.append).status is Status.OK
    assert "port taken, attempt 2" in stages


def test_ports_that_are_always_taken_are_given_up(launch: Launch, folder: Path) -> None:
    code = "open(f'{out}/tries', 'a').write(name[-1])\nraise RuntimeError('Address already in use')"
    assert launch(code).status is Status.FAILED
    assert (folder / "tries").read_text().count("0") == PORT_ATTEMPTS


def test_results_that_are_cut_short_fail_the_run(launch: Launch) -> None:
    run = launch(GOOD + "\nos.truncate(f'{request.result}.json', 20)")
    assert run.status is Status.FAILED
    assert "not a readable result" in run.reason


def test_a_fork_server_that_died_is_replaced(launch: Launch, site: LocalSite) -> None:
    code = FOREVER + "os.kill(os.getppid(), 9)" + WAIT
    run = launch(code)
    assert run.status is Status.FAILED
    told = f"the fork server on {socket.gethostname()}, from which its tasks are forked, ended."
    assert run.reason == told
    assert launch(GOOD).status is Status.OK


def test_one_fork_server_serves_all_runs(launch: Launch, folder: Path, site: LocalSite) -> None:
    with site.servers({}, None) as servers:
        (client,) = servers.clients.values()
    for _ in range(2):
        launch("open(f'{out}/parent', 'w').write(str(os.getppid()))\n" + GOOD)
        assert int((folder / "parent").read_text()) == client.ready.pid
