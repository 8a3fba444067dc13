"""Does the Slurm that launchers are tested on behave as one, and does it leave nothing?

What Slurm 22.05 was seen to do to a launcher (KillWait 5 s, proctrack/linuxproc):

scancel JOB, preemption, time limit, node failure, all alike: SIGCONT and SIGTERM at once to every
task of every step, to the batch script and to all its descendants, in whatever session; the job's
state changes at once, SIGKILL comes KillWait later.  At the time limit, which is enforced up to
20 s late, and at preemption, steps may get SIGTERM twice.  An srun below the batch script stays
until its tasks are gone and ends with status 137.
- A batch script that does not `exec` dies of that SIGTERM; what it had started is then killed by
  nobody (the job's exit code is 0:15 instead of 0:9).
- `scancel JOB.STEP` kills without warning; `scancel -b -s TERM JOB` signals the batch script only,
  `-s TERM` the steps only; `-f -s TERM` reaches srun as well, which kills its step at once.
- `--signal=B:USR1@30` comes up to a minute early.
- A batch job that is lost with a node is queued again (PENDING, with Restarts=1 and a start two
  minutes later) unless --no-requeue was given; then it is NODE_FAIL.  A lost node is noticed 16 s
  after it fell silent (SlurmdTimeout 10, MessageTimeout 5; 26 s with the usual MessageTimeout).
  Until then srun says nothing, not even where the tasks' connections were closed.
- salloc sends its command no signal, unless --kill-command is given: the command goes on after the
  allocation is gone, and only its steps end.  After SIGKILL of salloc the allocation stays.

srun consists of two processes.  SIGKILL of the first: the other kills the step at once.  SIGKILL of
its process group: the step runs on.  SIGTERM or SIGHUP: the step is killed at once, without
warning.  One SIGINT does nothing but print, two within a second kill.  A task that fails leaves the
others running without --kill-on-bad-exit=1; with it they get SIGTERM, and SIGKILL 5 s later.
Detached processes end with a step as long as their parents live; orphans outlive the job.
A step holds its cores on a node where its tasks have ended until the last one elsewhere has ended:
the next step there waits, unless it says --overlap.

Environment: SLURM_JOB_ID, SLURM_JOB_NODELIST, SLURM_JOB_NUM_NODES and SLURM_JOB_CPUS_PER_NODE are
in batch scripts, under salloc and in steps.  SLURMD_NODENAME, SLURM_PROCID, SLURM_NODEID,
SLURM_CPUS_ON_NODE and SLURM_TOPOLOGY_ADDR are not under salloc; SLURM_STEP_* are in steps only.  In
a step, SLURM_NTASKS, SLURM_NNODES and SLURM_TASKS_PER_NODE are the step's, SLURM_JOB_NODELIST and
SLURM_NODELIST are the job's.

Order: node lists are in Slurm's own, n8 before n10, however they were asked for; so are the tasks
of `srun --nodelist=n11,n8`.  Only --distribution=arbitrary with a file keeps another order.

Cores: without --exact a step takes all the job has on its nodes.  With it, it gets one core per
task unless srun itself is told --cpus-per-task or SRUN_CPUS_PER_TASK: what the job was given is not
handed down, though SLURM_CPUS_PER_TASK in the step says so.  Memory: a second step waits where the
job was given --mem, of which the first takes all; --mem=0 or --overlap on the steps avoids that.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ps_allreduce.process import kill_group
from tests.conftest import skip_or_fail
from tests.real.machines import wait_until
from tests.real.slurm_cluster import (
    NAMES,
    ROOT,
    SlurmCluster,
    missing_for_slurm,
    slurm_cluster,
)

#: Holds a cluster until somebody kills it.
HOLD = """
import pathlib, signal, sys
from tests.real.slurm_cluster import slurm_cluster
with slurm_cluster(pathlib.Path(sys.argv[1]), names=["n1"]):
    print("up", flush=True)
    signal.pause()
"""

#: Slurm is not ours: `make test-slurm` tests it, and CI only what the suite does with it.
real = [pytest.mark.slurm, pytest.mark.usefixtures("need_slurm")]

#: Until something is there or gone, on a busy machine.
UP_S = 60.0

#: In a job: enter its site as a launcher does.
ENTER = """
from launchers.settings import LauncherSettings
from launchers.sites.slurm.slurm_site import SlurmSite
from ps_allreduce.errors import UserError
try:
    with SlurmSite(LauncherSettings(launcher="slurm")):
        pass
except UserError:
    print("refused")
"""


@pytest.fixture(scope="module")
def need_slurm() -> None:
    if reason := missing_for_slurm():
        skip_or_fail(reason)


@pytest.fixture(scope="module")
def cluster(need_slurm: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmCluster]:
    with slurm_cluster(tmp_path_factory.mktemp("slurm")) as cluster:
        yield cluster


@pytest.fixture
def idle(cluster: SlurmCluster) -> SlurmCluster:
    cluster.output("scancel", "--user=root")
    cluster.wait_until_idle()
    return cluster


def submit(cluster: SlurmCluster, *options: str) -> int:
    return int(cluster.output("sbatch", "--parsable", *options))


def lines_of(cluster: SlurmCluster, *words: str) -> list[str]:
    """Output of a labelled step, one line per task, in the order of the tasks."""
    lines = cluster.output(*words).splitlines()
    return [line.split(": ")[1] for line in sorted(lines, key=lambda line: int(line.split(":")[0]))]


def processes_of(folder: Path) -> list[str]:
    """Command lines of all processes of a cluster, wherever they are."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdecimal() and str(folder).encode() in (entry / "environ").read_bytes():
                found.append((entry / "cmdline").read_bytes().replace(b"\0", b" ").decode())
        except OSError:
            continue
    return found


class TestCluster:
    pytestmark = real

    def test_nodes_share_the_folder_and_the_checkout_but_not_tmp(self, idle: SlurmCluster) -> None:
        there = str(idle.work / "there")
        idle.output("srun", "-N1", "-w", "n9", "touch", "/tmp/mine", there)
        idle.output("srun", "-N4", "ls", there, str(ROOT / "pyproject.toml"), sys.executable)
        assert [(idle.own_tmp(name) / "mine").exists() for name in NAMES] == [
            name == "n9" for name in NAMES
        ]
        assert not Path("/tmp/mine").exists()

    @pytest.mark.parametrize(
        ("options", "accepted"),
        [
            (["--exclusive"], True),
            (["--ntasks-per-node=2"], True),
            (["--ntasks-per-node=1"], False),
            (["--ntasks-per-node=2", "--oversubscribe"], False),
        ],
    )
    def test_a_job_knows_whether_its_nodes_are_its_alone(
        self, idle: SlurmCluster, options: list[str], accepted: bool
    ) -> None:
        words = ["env", f"PYTHONPATH={ROOT}", sys.executable, "-c", ENTER]
        done = idle.run(["salloc", "--quiet", "-N2", *options, *words])
        assert done.returncode == 0, done.stderr
        assert done.stdout == ("" if accepted else "refused\n")


class TestEnd:
    pytestmark = real

    def test_nothing_is_left(self, tmp_path_factory: pytest.TempPathFactory) -> None:
        folder = tmp_path_factory.mktemp("slurm")
        orphan = "(setsid sleep 1001 </dev/null >/dev/null 2>&1 &); sleep 1000"
        with slurm_cluster(folder, names=("a2", "a10"), cpus_per_node=16) as cluster:
            assert len(lines_of(cluster, "srun", "-N2", "-n32", "-l", "hostname")) == 32
            submit(cluster, "-N2", "--wrap", f"srun sh -c '{orphan}'")
            cluster.popen(["salloc", "-N1", "srun", "sleep", "1000"])
            wait_until(lambda: cluster.runs("a10", "sleep 1001"), UP_S, lambda: "no orphan")
            assert processes_of(folder)
        assert processes_of(folder) == []

    def test_nothing_is_left_of_a_cluster_whose_owner_is_killed(
        self, tmp_path_factory: pytest.TempPathFactory
    ) -> None:
        folder = tmp_path_factory.mktemp("held")
        with subprocess.Popen(
            [sys.executable, "-c", HOLD, str(folder)],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            start_new_session=True,
        ) as owner:
            assert owner.stdout is not None
            try:
                assert owner.stdout.readline() == b"up\n"
                assert processes_of(folder)
            finally:
                kill_group(owner.pid)
        wait_until(lambda: processes_of(folder) == [], UP_S, lambda: str(processes_of(folder)))
