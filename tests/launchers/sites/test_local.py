"""The local launcher with the real fork server and tasks that only pretend to train."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from launchers.protocol import LaunchedRun
from launchers.run import follow
from launchers.run.launcher import PORT_ATTEMPTS, HostsLauncher
from launchers.sites.local import LocalSite
from ps_allreduce.cluster import TfConfig
from ps_allreduce.errors import UserError
from ps_allreduce.fork_server.messages import AskTime, TimeTold
from ps_allreduce.point.experiment import Experiment, Profile
from ps_allreduce.point.strategies import Strategy
from ps_allreduce.record.records import Status
from tests.fakes import make_experiment
from tests.pretend import (
    FOREVER,
    GOOD,
    WAIT,
    driver_result,
    leave_results,
    pretending_server,
)

PROFILE = Profile(name="p", warmup_steps=2, warmup_s=1.0, measured_steps=3, deadline_s=20.0)

REDUCED = make_experiment(Strategy.ALLREDUCE, profile=PROFILE)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tasks")


@pytest.fixture(scope="module")
def site(folder: Path) -> LocalSite:
    return LocalSite(allow_login_node=True, fork_server=pretending_server(folder))


@pytest.fixture(scope="module")
def launcher(folder: Path, site: LocalSite) -> Iterator[HostsLauncher]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(follow, "GRACE_S", 0.1)
        with HostsLauncher(site, folder) as launcher:
            yield launcher


Launch = Callable[..., LaunchedRun]


@pytest.fixture
def launch(launcher: HostsLauncher, folder: Path) -> Launch:
    def launch(
        code: str,
        experiment: Experiment = REDUCED,
        progress: Callable[[str], None] = lambda _: None,
        weights: Path | None = None,
    ) -> LaunchedRun:
        for path in folder.iterdir():
            path.unlink()
        (folder / "task.py").write_text(code)
        leave_results(folder, driver_result(0), driver_result(1))
        return launcher.launch(experiment, progress=progress, weights=weights)

    return launch


def survivors(folder: Path) -> list[int]:
    """Tasks that left a process identifier and are still there a moment after the run."""
    pids = [int(path.read_text()) for path in folder.glob("*.pid")]
    assert pids
    return [
        pid
        for pid in pids
        if psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    ]


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


def test_servers_are_ended_when_their_chief_is_done(launch: Launch, folder: Path) -> None:
    served = make_experiment(Strategy.PS_ASYNC, profile=PROFILE)
    leave = FOREVER + "\nif name != 'chief:0':" + WAIT.replace("\n", "\n    ", 1) + GOOD
    run = launch(leave, served)
    assert {task.task: task.exit for task in run.tasks} == {
        "ps:0": None,
        "ps:1": None,
        "worker:0": None,
        "worker:1": None,
        "chief:0": 0,
    }
    assert all(task.cpu_s is not None for task in run.tasks)
    assert survivors(folder) == []


def test_every_task_gets_its_place_in_one_cluster(launch: Launch, folder: Path) -> None:
    code = "open(f'{out}/{name}.config', 'w').write(request.tf_config)\n" + GOOD
    run = launch(code)
    configs = [TfConfig.parse(path.read_text()) for path in sorted(folder.glob("*.config"))]
    assert [str(config.task) for config in configs] == ["worker:0", "worker:1"]
    assert configs[0].cluster == configs[1].cluster
    assert [configs[0].cluster.address(c.task) for c in configs] == [t.address for t in run.tasks]


def test_a_single_worker_has_no_cluster(launch: Launch) -> None:
    single = make_experiment(Strategy.SINGLE, profile=PROFILE)
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


def test_another_network_of_this_host_can_be_chosen(launch: Launch) -> None:
    chosen = make_experiment(Strategy.ALLREDUCE, profile=PROFILE, interface="127.0.0.0/8")
    assert launch(GOOD, chosen).hosts[0].address == "127.0.0.1"
    with pytest.raises(UserError, match="has no interface ib7"):
        launch(GOOD, make_experiment(Strategy.ALLREDUCE, profile=PROFILE, interface="ib7"))


def test_a_failure_is_quoted_and_the_others_are_ended(launch: Launch, folder: Path) -> None:
    run = launch(FOREVER + "if name == 'worker:1': raise ValueError('no luck')" + WAIT)
    assert (run.status, run.reason) == (Status.FAILED, "worker:1: ValueError: no luck")
    assert "Traceback" in run.log
    assert [task.exit for task in run.tasks] == [None, 1]
    assert survivors(folder) == []


def test_a_killed_task_is_to_blame_before_those_that_complain(launch: Launch) -> None:
    code = (
        "import time\n"
        "if name == 'worker:0': raise RuntimeError('lost worker:1')\n"
        "time.sleep(0.05); os.kill(os.getpid(), 9)"
    )
    run = launch(code)
    assert (run.status, run.reason) == (Status.FAILED, "worker:1 was killed by SIGKILL")


def test_a_run_that_hangs_is_ended_at_its_deadline(launch: Launch, folder: Path) -> None:
    short = make_experiment(Strategy.ALLREDUCE, profile=replace(PROFILE, deadline_s=1.0))
    run = launch(FOREVER + WAIT, short)
    assert run.status is Status.TIMED_OUT
    assert run.reason == "not finished after 1 s; last heard of: connected"
    assert run.phases.bring_up_s is not None
    assert run.phases.bring_up_s < 1.0
    assert survivors(folder) == []


def test_an_interruption_ends_all_tasks_and_the_run_is_kept(launch: Launch, folder: Path) -> None:
    def interrupt(_: str) -> None:
        if len(list(folder.glob("*.pid"))) == 2:
            raise KeyboardInterrupt

    run = launch(FOREVER + WAIT, progress=interrupt)
    assert (run.status, run.reason) == (Status.INTERRUPTED, "interrupted by the operator")
    assert survivors(folder) == []


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


def test_results_that_are_missing_fail_the_run(launch: Launch) -> None:
    run = launch("report('done')")
    assert run.status is Status.FAILED
    assert run.reason.startswith("results are missing: ")


def test_results_that_are_cut_short_fail_the_run(launch: Launch) -> None:
    run = launch(GOOD + "\nos.truncate(f'{request.result}.json', 20)")
    assert run.status is Status.FAILED
    assert "not a readable result" in run.reason


def test_runs_leave_nothing_in_the_scratch_folder(launch: Launch, site: LocalSite) -> None:
    launch(GOOD)
    with site.servers({}, None) as servers:
        (client,) = servers.clients.values()
        client.answer(AskTime(), TimeTold)  # the request before it has been served
        assert list(Path(client.ready.scratch).iterdir()) == []


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
