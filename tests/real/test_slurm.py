"""The suite on a real Slurm, as users run it: by `make`, from a login node and in an allocation.

Sweeps are the quick profile with one launch per point, so that a machine with two cores gets
through them.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import compress
from pathlib import Path
from tempfile import TemporaryDirectory

import psutil
import pytest

from ps_allreduce.point.models.trained import OwnModel
from ps_allreduce.record.files import iter_record_paths, load_record
from ps_allreduce.record.provenance import ROOT
from ps_allreduce.record.records import RunRecord, Status
from tests.conftest import skip_or_fail
from tests.real.machines import wait_until
from tests.real.points import in_flight
from tests.real.slurm_cluster import NAMES, SlurmCluster, missing_for_slurm, slurm_cluster
from tests.real.users_model import write_model

pytestmark = [pytest.mark.tensorflow, pytest.mark.slow, pytest.mark.slurm, pytest.mark.timeout(900)]

SWEEP_S = 600.0

#: Until a sweep has got so far, or has noticed what happened to its job.
FOLLOWED_S = 240.0

FORK_SERVER = "ps_allreduce.fork_server.server"

#: The status of `make` itself when a recipe ends with another one than 0.
MAKE_FAILED = 2


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmCluster]:
    if reason := missing_for_slurm():
        skip_or_fail(reason)
    with slurm_cluster(tmp_path_factory.mktemp("slurm")) as cluster:
        yield cluster


@pytest.fixture
def results(cluster: SlurmCluster, request: pytest.FixtureRequest) -> Path:
    """A results folder that all hosts see."""
    return cluster.work / str(request.node.name)


def make(target: str, results: Path, arguments: str, *variables: str) -> list[str]:
    """The words of a sweep as a user types them, in the environment of these tests."""
    return [
        "make",
        f"--directory={ROOT}",
        target,
        "LAUNCHER=slurm",
        "ENV=existing",
        f"PYTHON={sys.executable}",
        f"RESULTS={results}",
        f"ARGS=--repetitions 1 --workers 2 {arguments}",
        *variables,
    ]


def run(
    cluster: SlurmCluster, words: Sequence[str], *, status: int = 0
) -> subprocess.CompletedProcess[str]:
    done = cluster.run(words, timeout_s=SWEEP_S)
    assert done.returncode == status, f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return done


def records(results: Path, sweep: str) -> list[RunRecord]:
    return [load_record(path) for path in iter_record_paths(results / sweep)]


def statuses(found: Sequence[RunRecord]) -> dict[Status, int]:
    return {status: sum(r.status is status for r in found) for status in {r.status for r in found}}


def wait_for(is_so: Callable[[], bool], what: str) -> None:
    wait_until(is_so, FOLLOWED_S, lambda: what)


def imports(found: Sequence[RunRecord], name: str) -> set[float | None]:
    """How long fork servers on a node took to import TensorFlow: as good as their names."""
    return {host.import_s for record in found for host in record.hosts if host.name == name}


def fork_server(cluster: SlurmCluster, name: str) -> psutil.Process:
    """The only fork server on a node, once one that was given up has ended."""
    found: list[psutil.Process] = []

    def is_one() -> bool:
        found[:] = fork_servers(cluster, name)
        return len(found) == 1

    wait_for(is_one, f"{name} has not one fork server")
    return found[0]


def fork_servers(cluster: SlurmCluster, name: str) -> list[psutil.Process]:
    """Those on a node; the process that watches over each is the child of Slurm's own."""
    lines = cluster.processes(name)
    steps = [pid for pid, line in lines.items() if line.startswith("slurmstepd")]
    guards = [child for step in steps for child in children_of(step)]
    is_guard = [FORK_SERVER in lines.get(guard.pid, "") for guard in guards]
    return [child for guard in compress(guards, is_guard) for child in children_of(guard.pid)]


def children_of(pid: int) -> list[psutil.Process]:
    """Of a process; one that has just ended has none."""
    with suppress(psutil.NoSuchProcess):
        return psutil.Process(pid).children()
    return []


def nothing_is_left(cluster: SlurmCluster) -> None:
    wait_for(
        lambda: not any(cluster.runs(name, FORK_SERVER) for name in NAMES),
        "fork servers are left",
    )
    left = [path for name in NAMES for path in cluster.own_tmp(name).glob("ps-allreduce-*")]
    assert left == []


def test_ps_sweep_with_nodes_of_another_kind_through_sbatch(
    cluster: SlurmCluster, results: Path
) -> None:
    """A heterogeneous job: the servers' nodes are those of another partition."""
    apart = "--ps-hosts 1 --ps-sbatch=--partition=urgent"
    words = make("ps-sweep", results, f"--hosts 2 --exchange buckets --num-ps 1 {apart}")
    planned = run(cluster, [*words[:-1], f"{words[-1]} --dry-run"])
    assert "at most 0." in planned.stdout
    assert "node hours" in planned.stdout
    assert "#SBATCH --nodes=2" in planned.stdout
    assert "#SBATCH hetjob" in planned.stdout
    assert not (results / "ps-sweep" / "runs").exists()

    run(cluster, words)
    found = records(results, "ps-sweep")
    assert statuses(found) == {Status.OK: 4}
    pair = next(r for r in found if r.experiment.strategy.uses_servers)
    # The order is Slurm's: first the nodes of the first component, then those of the second.
    first, second, apart_from_them = names = [host.name for host in pair.hosts]
    assert {task.task: task.host for task in pair.tasks} == {
        "worker:0": first,
        "worker:1": second,
        "ps:0": apart_from_them,
        "chief:0": first,
    }
    assert {host.interface.name for host in pair.hosts if host.interface} == {"eth0"}
    assert pair.job_id is not None
    assert all(host.facts.switch for host in pair.hosts)
    # The nodes are the job's alone: each imported TensorFlow once, in a step for all runs.
    assert [len(imports(found, name)) for name in names] == [1, 1, 1]
    assert len(pair.links) == 3
    assert all(link.bits_per_s > 0 and link.round_trip_s > 0 for link in pair.links)
    files = list((results / "ps-sweep" / "runs").glob("*/*"))
    assert len(files) <= 3 * len(found)
    assert (results / "ps-sweep" / "report.html").exists()
    nothing_is_left(cluster)

    again = run(cluster, words)
    assert "no job is submitted" in again.stderr
    train_taken_home(cluster, results)


def train_taken_home(cluster: SlurmCluster, results: Path) -> None:
    """The fastest setting, as a training of its own in a job of its own."""
    folder = results / "taken_home"
    words = ["make", f"--directory={ROOT}", "export", "ENV=existing", f"PYTHON={sys.executable}"]
    run(cluster, [*words, f"RESULTS={results}", f"INTO={folder}"])
    arguments = ["job.sbatch", "--steps-per-epoch", "3"]
    run(cluster, ["env", f"--chdir={folder}", "sbatch", "--wait", *arguments])
    (log,) = folder.glob("training-*.log")
    assert "step      3  epoch 1" in log.read_text()
    assert (folder / "final.keras").exists()


def test_a_run_of_a_users_model_on_shared_nodes_has_copies_of_its_files(
    cluster: SlurmCluster, results: Path
) -> None:
    suite = ["env", f"PYTHONPATH={ROOT}", sys.executable, "-m", "experiments", "run-one"]
    dedicated = [
        "--strategy",
        "ps_sync",
        "--num-workers",
        "2",
        "--num-ps",
        "1",
        "--layout",
        "dedicated",
    ]
    where = ["--launcher", "slurm", "--shared-nodes", "--results", str(results)]
    # The folder /tmp of every node is its own, so tasks have the copies only.
    with TemporaryDirectory(dir="/tmp") as folder:
        model = write_model(Path(folder))
        words = [*suite, *dedicated, *where, "--model", model]
        run(cluster, ["salloc", "--nodes=3", "--ntasks-per-node=1", *words])
    (served,) = records(results, "run-one")
    assert served.status is Status.OK
    own = served.experiment.workload.model
    assert isinstance(own, OwnModel)
    assert own.name == model
    copies = own.folder(results / "data")
    assert {path.name for path in copies.iterdir()} == {"mine.py", "blocks.py", "files.json"}
    # The allocation's own order: sorted as text, n10 would come first.
    assert [host.name for host in served.hosts] == ["n8", "n9", "n10"]
    assert {task.task: task.host for task in served.tasks} == {
        "worker:0": "n8",
        "worker:1": "n9",
        "ps:0": "n10",
        "chief:0": "n8",
    }
    nothing_is_left(cluster)


def test_ps_sweep_survives_a_dead_node_and_a_killed_fork_server(
    cluster: SlurmCluster, results: Path
) -> None:
    words = make("ps-sweep", results, "--hosts 2 --exchange buckets", "NUM_PS=1")
    sweep_dir = results / "ps-sweep"

    def start_and_wait(count: int) -> subprocess.Popen[str]:
        # A run that ended with its node may have left its note.
        former = in_flight(sweep_dir)
        output = (results.parent / f"{results.name}-{count}.log").open("w")
        with output:
            suite = cluster.popen(words, stdout=output, stderr=output)
        wait_for(lambda: len(list(iter_record_paths(sweep_dir))) >= count, "no run is made")
        wait_for(lambda: in_flight(sweep_dir) not in ({}, former), "no further run is begun")
        time.sleep(1)
        return suite

    suite = start_and_wait(1)
    cluster.kill("n9")
    assert suite.wait(FOLLOWED_S) == MAKE_FAILED
    lost = [r for r in records(results, "ps-sweep") if r.status is not Status.OK]
    assert lost, statuses(records(results, "ps-sweep"))
    assert all("n9" in r.reason for r in lost), [r.reason for r in lost]
    cluster.start_node("n9")
    cluster.wait_until_idle()

    known = records(results, "ps-sweep")
    suite = start_and_wait(len(known))

    # With its tasks: between two runs it would be replaced, and nobody would be told.
    wait_for(
        lambda: bool(children_of(fork_server(cluster, "n8").pid)),  # of which every run has one
        "no task is started",
    )
    fork_server(cluster, "n8").kill()
    assert suite.wait(FOLLOWED_S) == 0
    former_jobs = {r.job_id for r in known}
    last = [r for r in records(results, "ps-sweep") if r.job_id not in former_jobs]
    (killed,) = (r for r in last if r.status is not Status.OK)
    assert killed.status is Status.INTERRUPTED
    assert "the fork server on n8, from which its tasks are forked, ended" in killed.reason
    # It alone was replaced.
    assert [len(imports(last, name)) for name in ("n8", "n9")] == [2, 1]

    found = records(results, "ps-sweep")
    planned = {r.experiment_id for r in found}
    assert {r.experiment_id for r in found if r.status is Status.OK} == planned
    assert len(planned) == 4
    nothing_is_left(cluster)


LAUNCHES = """
import os, sys
from pathlib import Path
from launchers import make_launcher
from launchers.settings import LauncherSettings
from ps_allreduce.point.resources import Spread
from ps_allreduce.point.strategies import AllReduce
from tests.real.points import LONG, launch, point
def tell(*words):
    print(*words, flush=True)
tell(os.getpid(), os.environ["SLURM_JOB_ID"])
settings = LauncherSettings(launcher="slurm", results=Path(sys.argv[1]))
with make_launcher(settings) as launcher:
    launcher.host_facts()
    long = point(AllReduce, 2, launcher="slurm", spread=Spread(), measurement=LONG)
    launcher.prepare(long.workload)
    for line in sys.stdin:
        made = launch(launcher, long, tell, deadline_s=float(line))
        tell(made.status, made.host_fault)
"""


def test_a_stopped_fork_server_a_cancelled_step_and_a_killed_suite_leave_nothing(
    cluster: SlurmCluster, results: Path
) -> None:
    suite = shlex.join(["env", f"PYTHONPATH={ROOT}", sys.executable, "-c", LAUNCHES, str(results)])
    # The job outlives the suite, and does not tidy up in its place.
    words = ["salloc", "--quiet", "--nodes=2", "--exclusive", "sh", "-c", f"{suite}; sleep 1000"]
    job = cluster.popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=1)
    asked, told = job.stdin, job.stdout
    assert asked is not None
    assert told is not None

    def begin(deadline_s: float) -> None:
        asked.write(f"{deadline_s}\n")
        hear("connected")

    def hear(beginning: str) -> str:
        return next(line.strip() for line in told if line.startswith(beginning))

    with asked, told:
        pid, job_id = told.readline().split()
        try:
            begin(15)
            fork_server(cluster, "n9").suspend()
            assert hear("inter") == "interrupted the fork server on n9 does not answer any more."
            begin(FOLLOWED_S)
            fork_server(cluster, "n9")  # the one in its place
            cluster.output("scancel", f"{job_id}.0")
            ended = "interrupted the fork server on n8, from which its tasks are forked, ended."
            assert hear("inter") == ended
            begin(FOLLOWED_S)
            os.kill(int(pid), signal.SIGKILL)
            nothing_is_left(cluster)
            assert "JobState=RUNNING" in cluster.output("scontrol", "show", "job", job_id)
        finally:
            cluster.output("scancel", job_id)


def test_what_cannot_be_used_is_refused_in_a_sentence(cluster: SlurmCluster, results: Path) -> None:
    suite = [sys.executable, "-m", "experiments", "run-one", "--strategy", "single"]
    words = ["env", f"PYTHONPATH={ROOT}", *suite, "--results", str(results)]
    assert "login node" in run(cluster, words, status=2).stderr
    words += ["--launcher", "slurm"]
    assert "no Slurm job is active" in run(cluster, words, status=2).stderr
    shared = ["salloc", "--nodes=1", "--ntasks=1", "--oversubscribe", *words]
    assert "--shared-nodes" in run(cluster, shared, status=2).stderr
    array = run(cluster, ["env", "SLURM_JOB_ID=1", "SLURM_ARRAY_JOB_ID=1", *words[1:]], status=2)
    assert "array" in array.stderr


def test_a_preempted_job_is_recorded_as_such_and_the_job_of_the_next_size_begins(
    cluster: SlurmCluster, results: Path
) -> None:
    sweep_dir = results / "allreduce-sweep"
    output_file = results.parent / f"{results.name}.log"
    with output_file.open("w") as output:
        words = make("allreduce-sweep", results, "--hosts 2 --workers 1,2 --jobs-by-size")
        suite = cluster.popen(words, stdout=output, stderr=output)
    wait_for(lambda: bool(in_flight(sweep_dir)), "no run is begun")
    submitted = json.loads((sweep_dir / "slurm_job.json").read_text())
    first, second = (job["job_id"] for job in submitted["jobs"])
    assert in_flight(sweep_dir)["job_id"] == first
    assert "NumNodes=1 " in cluster.output("scontrol", "show", "job", first)
    time.sleep(1)
    cluster.output("srun", "--partition=urgent", "--nodes=4", "--exclusive", "true")

    wait_for(lambda: in_flight(sweep_dir).get("job_id") == second, "the second job begins no run")
    assert "NumNodes=2 " in cluster.output("scontrol", "show", "job", second)
    cluster.output("scancel", second)
    assert suite.wait(FOLLOWED_S) == MAKE_FAILED
    reasons = {record.job_id: record.reason for record in records(results, "allreduce-sweep")}
    assert "preempt" in reasons[first].replace("-", "")
    assert reasons[second].endswith(f"job {second} was cancelled")
    assert f"Following jobs {first}, {second}." in output_file.read_text()
    nothing_is_left(cluster)


def test_a_run_that_cannot_end_before_the_limit_is_not_begun(
    cluster: SlurmCluster, results: Path
) -> None:
    words = make("allreduce-sweep", results, "--hosts 2 --time 1")
    run(cluster, words, status=MAKE_FAILED)
    assert records(results, "allreduce-sweep") == []
    (log,) = (results / "allreduce-sweep" / "slurm").glob("*.log")
    assert "no further run could finish" in log.read_text()


COPY = """
import sys
from pathlib import Path
from launchers.sites.slurm.step_servers import NodeCopy
copy = NodeCopy(["n8", "n9"], Path(sys.argv[1]))
copy.spread()
print(copy.folder, flush=True)
input()
copy.remove()
"""


def test_packages_are_copied_to_the_own_disk_of_every_node(
    cluster: SlurmCluster, results: Path
) -> None:
    packages = results / "packages"
    packages.mkdir(parents=True)
    (packages / "module.py").write_text("VALUE = 7\n")
    words = ["env", f"PYTHONPATH={ROOT}", sys.executable, "-c", COPY, str(packages)]
    allocate = ["salloc", "--quiet", "--nodes=2", "--exclusive"]
    pipe = subprocess.PIPE
    with cluster.popen([*allocate, *words], stdin=pipe, stdout=pipe) as suite:
        assert suite.stdout is not None
        folder = Path(suite.stdout.readline().strip()).name
        copies = [cluster.own_tmp(name) / folder / "module.py" for name in ("n8", "n9")]
        assert [copy.read_text() for copy in copies] == ["VALUE = 7\n"] * 2
        assert not (cluster.own_tmp("n10") / folder).exists()
        suite.communicate("\n", timeout=60)
    assert suite.returncode == 0
    nothing_is_left(cluster)
