"""The local launcher with the real fork server and tasks that only pretend to train."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from launchers import local
from launchers.local import LocalLauncher
from launchers.protocol import LaunchedRun
from ps_allreduce.cluster import TfConfig
from ps_allreduce.experiment import Experiment, Profile
from ps_allreduce.records import Status
from ps_allreduce.strategies import Strategy
from tests.fakes import FORK_SERVER_SCRIPT, driver_result, leave_results, make_experiment

#: A task executes the file named by FAKE_TASK; `name` is its own name, `out` a folder of the test.
PRETENDING = FORK_SERVER_SCRIPT.replace(
    "exec(request.tf_config, {",
    "os.environ.update(request.environment)\n"
    "    out = os.environ['FAKE_TASK']\n"
    "    exec(open(out + '/task.py').read(), {'name': request.task, 'out': out, 'os': os, ",
)

GOOD = """
import shutil
print('trained')
report('connected')
index = name[-1]
for ending in ('json', 'npz'):
    shutil.copy(f'{out}/{index}.{ending}', f'{request.result}.{ending}')
report('done')
"""

FOREVER = """
import time
report('connected')
open(f'{out}/{name}.pid', 'w').write(str(os.getpid()))
"""

WAIT = "\ntime.sleep(600)\n"

PROFILE = Profile(name="p", warmup_steps=2, warmup_s=1.0, measured_steps=3, deadline_s=20.0)

REDUCED = make_experiment(Strategy.ALLREDUCE, profile=PROFILE)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tasks")


@pytest.fixture(scope="module")
def launcher(folder: Path) -> Iterator[LocalLauncher]:
    words = (sys.executable, "-c", PRETENDING)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FAKE_TASK", str(folder))
        patch.setattr(local, "_available_cores", lambda: [0, 1])
        patch.setattr(local, "GRACE_S", 0.1)
        with LocalLauncher(folder, allow_login_node=True, fork_server=words) as launcher:
            yield launcher


Launch = Callable[..., LaunchedRun]


@pytest.fixture
def launch(launcher: LocalLauncher, folder: Path) -> Launch:
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
    code = "assert (request.weights is not None) == (name == 'worker:0')\n" + GOOD
    assert launch(code, weights=tmp_path / "weights.npz").reason == ""


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
    assert (folder / "tries").read_text().count("0") == local.PORT_ATTEMPTS


def test_results_that_are_missing_fail_the_run(launch: Launch) -> None:
    run = launch("report('done')")
    assert run.status is Status.FAILED
    assert run.reason.startswith("results are missing: ")


def test_results_that_are_cut_short_fail_the_run(launch: Launch) -> None:
    run = launch(GOOD + "\nos.truncate(f'{request.result}.json', 20)")
    assert run.status is Status.FAILED
    assert "not a readable result" in run.reason


def test_runs_leave_nothing_in_the_scratch_folder(launch: Launch, launcher: LocalLauncher) -> None:
    launch(GOOD)
    assert [path.name for path in launcher._scratch.iterdir()] == ["fork_server.log"]


def test_leaving_removes_everything(folder: Path, tmp_path: Path) -> None:
    (folder / "task.py").write_text(GOOD)
    words = (sys.executable, "-c", PRETENDING)
    with LocalLauncher(tmp_path, allow_login_node=True, fork_server=words) as launcher:
        server = launcher._server()
        pid = server._program.process.pid
        scratch = launcher._scratch
    deadline = time.monotonic() + 5
    while psutil.pid_exists(pid) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not psutil.pid_exists(pid)
    assert not scratch.exists()
