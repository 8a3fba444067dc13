"""Steps of a job: the command line of those with fork servers, and those that copy packages.

Decides that everything is said explicitly: what `srun` takes from a job's options differs between
versions of Slurm and between batch and interactive jobs.  Decides also where the copy of Python's
packages is kept on a node, and that it goes when the job's work is over.
"""

from __future__ import annotations

import os
import secrets
import tarfile
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from launchers.processes import CommandAnswer, run_quietly
from launchers.sites.slurm.hostlist import render_hostlist
from ps_allreduce.errors import LaunchError
from ps_allreduce.scratch import scratch_folder

#: Packing and sending some 2 GB to many nodes.
SPREAD_S = 1800.0

REMOVE_S = 120.0

#: Variables from which `srun` takes options.  Source: srun(1), "INPUT ENVIRONMENT VARIABLES".
INPUT_VARIABLES = frozenset(
    f"SLURM_{name}"
    for name in (
        *("CPUS_PER_TASK", "CPUS_PER_GPU", "TRES_PER_TASK", "NTASKS", "NPROCS", "NNODES"),
        *("NTASKS_PER_NODE", "NTASKS_PER_CORE", "NTASKS_PER_SOCKET", "NTASKS_PER_GPU"),
        *("MEM_PER_CPU", "MEM_PER_NODE", "MEM_PER_GPU", "MEM_BIND", "THREADS_PER_CORE", "HINT"),
        *("DISTRIBUTION", "EXACT", "EXCLUSIVE", "OVERLAP", "WHOLE", "OVERCOMMIT", "KILL_BAD_EXIT"),
        *("CPU_BIND", "CPU_BIND_LIST", "CPU_BIND_TYPE", "CPU_BIND_VERBOSE", "LABELIO", "WAIT"),
        *("STDINMODE", "STDOUTMODE", "STDERRMODE", "UNBUFFEREDIO", "EXPORT_ENV", "NO_KILL"),
        *("MPI_TYPE", "MULTI_PROG", "TASK_PROLOG", "TASK_EPILOG", "STEP_RESV_PORTS"),
    )
)


def step_words(
    cores: Mapping[str, int],
    folder: str,
    command: Sequence[str],
    *,
    beside: bool = False,
    het_group: int | None = None,
) -> list[str]:
    """`srun` that starts a command once on each of these hosts and nowhere else.

    A command that ends, however it does, leaves those on other hosts alone.

    Args:
        cores: how many are used of every host; the largest number is asked for on all of them.
        folder: the working directory.
        beside: another step may still hold the same resources.
        het_group: the component of a heterogeneous job that has the hosts.
    """
    count = len(cores)
    return [
        "srun",
        *([] if het_group is None else [f"--het-group={het_group}"]),
        f"--nodes={count}",
        f"--ntasks={count}",
        "--ntasks-per-node=1",
        f"--nodelist={render_hostlist(list(cores))}",
        f"--cpus-per-task={max(cores.values())}",
        "--exact",
        "--mem=0",  # all of the job's
        "--mpi=none",
        "--input=none",
        "--kill-on-bad-exit=0",
        "--wait=0",  # for the others, where slurm.conf has a WaitTime
        *(["--overlap"] if beside else []),
        "--export=ALL",
        f"--chdir={folder}",
        "--job-name=ps_allreduce",
        *command,
    ]


def step_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment for `srun`: without what would change the step behind our back."""
    kept = {name: value for name, value in environment.items() if name not in INPUT_VARIABLES}
    # An option since 24.05, which older versions would refuse: one task without memory ends alone.
    return kept | {"SLURM_OOM_KILL_STEP": "0"}


class NodeCopy:
    """The packages of one folder, on every node's own disk below `/tmp`.

    Many nodes that import TensorFlow from one shared file system read the same thousands of files
    at the same time.

    Args:
        packages: the folder that Python imports from.
    """

    def __init__(self, hosts: Sequence[str], packages: Path) -> None:
        self._hosts = hosts
        self._packages = packages
        # Nobody can guess the name and put packages of his own there first.
        self.folder = Path(f"/tmp/ps-allreduce-packages-{secrets.token_hex(8)}")
        self._archive = self.folder.with_suffix(".tar")

    def spread(self) -> None:
        """Pack, send and unpack; whatever goes wrong, nothing stays.

        Raises:
            LaunchError: Slurm cannot send it, or a node has no room.
        """
        try:
            self._send()
            self._on_every_node("mkdir", "-m", "700", str(self.folder))
            self._on_every_node("tar", "-xf", str(self._archive), "-C", str(self.folder))
        except BaseException:
            self.remove()
            raise

    def _send(self) -> None:
        with scratch_folder(Path(tempfile.gettempdir())) as packing:
            archive = packing / "packages.tar"
            with tarfile.open(archive, "w") as pack:
                pack.add(self._packages, arcname=".")
            sent = run_quietly(["sbcast", str(archive), str(self._archive)], SPREAD_S)
            _expect(sent, "sbcast")

    def remove(self) -> None:
        """Remove the copy; a node that does not answer keeps it, as its /tmp is cleaned anyway."""
        self._run(REMOVE_S, "rm", "-rf", str(self.folder), str(self._archive))

    def _on_every_node(self, *command: str) -> None:
        _expect(self._run(SPREAD_S, *command), command[0])

    def _run(self, within_s: float, *command: str) -> CommandAnswer | None:
        words = step_words(dict.fromkeys(self._hosts, 1), "/tmp", command)
        return run_quietly(words, within_s, step_environment(os.environ))


def _expect(answer: CommandAnswer | None, what: str) -> None:
    if answer is None or answer.status != 0:
        said = "no answer" if answer is None else " ".join(answer.err.split())[-300:]
        raise LaunchError(f"the packages could not be copied to the nodes ({what}: {said}).")
