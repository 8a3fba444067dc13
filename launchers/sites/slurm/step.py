"""The command line and environment of the one step that a run gets.  Pure.

Decides that everything is said explicitly: what `srun` takes from a job's options differs between
versions of Slurm and between batch and interactive jobs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from launchers.sites.slurm.hostlist import render_hostlist

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


def step_words(cores: Mapping[str, int], folder: str, command: Sequence[str]) -> list[str]:
    """`srun` that starts a command once on each of these hosts and nowhere else.

    Args:
        cores: how many are used of every host; the largest number is asked for on all of them.
        folder: the working directory.
    """
    count = len(cores)
    return [
        "srun",
        f"--nodes={count}",
        f"--ntasks={count}",
        "--ntasks-per-node=1",
        f"--nodelist={render_hostlist(list(cores))}",
        f"--cpus-per-task={max(cores.values())}",
        "--exact",
        "--mem=0",  # all of the job's
        "--mpi=none",
        "--input=none",
        "--kill-on-bad-exit=1",
        "--export=ALL",
        f"--chdir={folder}",
        "--job-name=ps_allreduce",
        *command,
    ]


def step_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment for `srun`: without what would change the step behind our back."""
    return {name: value for name, value in environment.items() if name not in INPUT_VARIABLES}
