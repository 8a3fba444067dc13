"""Fork servers that come onto hosts by steps of a job, and serve for as long as they are wanted.

Decides that a step brings up all its servers or none, that all of them end with it, and that kept
servers serve until they are lost or silent: then their hosts, and no others, get new ones.  Decides
that everything is said explicitly to `srun`, since what it takes from a job's options differs
between versions of Slurm; and that the copy of Python's packages is one more temporary folder of
a node, which goes when the job's work is over.
"""

from __future__ import annotations

import os
import secrets
import socket
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from launchers.fork_servers.bring_up import BACKLOG, let_in, own_addresses
from launchers.fork_servers.client import ForkServerClient, last_lines
from launchers.fork_servers.host_servers import HostServers
from launchers.processes import (
    BackgroundProcess,
    CommandAnswer,
    fork_server_environment,
    fork_server_words,
    run_quietly,
    start_in_background,
)
from launchers.sites.slurm.allocation import Component
from launchers.sites.slurm.hostlist import render_hostlist
from ps_allreduce.errors import LaunchError
from ps_allreduce.fork_server.messages import TOKEN
from ps_allreduce.record.provenance import ROOT
from ps_allreduce.scratch import COPY, scratch_folder, scratch_parent, scratch_prefix
from ps_allreduce.tf_texts import CHATTER

#: Packing and sending some 2 GB to many nodes.
SPREAD_S = 1800.0

REMOVE_S = 120.0

#: Variables from which `srun` takes options.  Source: srun(1), "INPUT ENVIRONMENT VARIABLES".
INPUT_VARIABLES = frozenset(
    f"SLURM_{name}"
    for name in (
        *("CPUS_PER_TASK", "CPUS_PER_GPU", "TRES_PER_TASK", "NTASKS", "NPROCS", "NNODES"),
        *("NTASKS_PER_NODE", "NTASKS_PER_CORE", "NTASKS_PER_SOCKET", "NTASKS_PER_GPU"),
        # Totals and shares of the allocation; a step may have fewer nodes, and has a task on each.
        *("GPUS", "GPUS_PER_NODE", "GPUS_PER_SOCKET", "GPUS_PER_TASK", "GPU_BIND", "TRES_BIND"),
        *("GRES", "GRES_FLAGS", "STEP_GRES", "NTASKS_PER_TRES", "CORE_SPEC", "THREAD_SPEC"),
        *("HOSTFILE", "IMMEDIATE", "DEPENDENCY", "TIMELIMIT", "USE_MIN_NODES", "SPREAD_JOB"),
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


def gpus_of_part(environment: Mapping[str, str], num_nodes: int, num_all: int) -> dict[str, str]:
    """What `srun` is told of GPUs where a step has fewer nodes than the job asked a total for.

    A step that says nothing asks for the job's total again, which its nodes do not have: `Invalid
    generic resource (gres) specification`.  Empty where nothing has to be told.
    """
    kind, colon, total = environment.get("SLURM_GPUS", "").rpartition(":")
    if num_nodes == num_all or not total.isdecimal() or int(total) % num_all:
        return {}
    return {"SLURM_GPUS_PER_NODE": f"{kind}{colon}{int(total) // num_all}"}


class NodeCopy:
    """The packages of one folder, among the temporary files of every node.

    Many nodes that import TensorFlow from one shared file system read the same thousands of files
    at the same time.  A copy that a killed launcher left is removed there as all left-overs are.

    Args:
        packages: the folder that Python imports from.
    """

    def __init__(self, hosts: Sequence[str], packages: Path) -> None:
        self._hosts = hosts
        self._packages = packages
        # Nobody can guess the name and put packages of his own there first.
        name = f"{scratch_prefix(COPY)}{secrets.token_hex(8)}"
        self.folder = scratch_parent() / name
        self._archive = self.folder / "packages.tar"

    def spread(self) -> None:
        """Pack, send and unpack; whatever goes wrong, nothing stays.

        Raises:
            LaunchError: Slurm cannot send it, or a node has no room.
        """
        try:
            self._on_every_node("mkdir", "-m", "700", str(self.folder))
            self._send()
            self._on_every_node("tar", "-xf", str(self._archive), "-C", str(self.folder))
        except BaseException:
            self.remove()
            raise

    def _send(self) -> None:
        with scratch_folder(scratch_parent()) as packing:
            archive = packing / "packages.tar"
            with tarfile.open(archive, "w") as pack:
                pack.add(self._packages, arcname=".")
            sent = run_quietly(["sbcast", str(archive), str(self._archive)], SPREAD_S)
            _expect(sent, "sbcast")

    def remove(self) -> None:
        """Remove the copy; on a node that does not answer it is a left-over."""
        self._run(REMOVE_S, "rm", "-rf", str(self.folder))

    def _on_every_node(self, *command: str) -> None:
        _expect(self._run(SPREAD_S, *command), command[0])

    def _run(self, within_s: float, *command: str) -> CommandAnswer | None:
        words = step_words(dict.fromkeys(self._hosts, 1), "/tmp", command)
        return run_quietly(words, within_s, step_environment(os.environ))


def _expect(answer: CommandAnswer | None, what: str) -> None:
    if answer is None or answer.status != 0:
        said = "no answer" if answer is None else " ".join(answer.err.split())[-300:]
        raise LaunchError(f"the packages could not be copied to the nodes ({what}: {said}).")


#: How long a step may take to end once its lines are cut; a node that died may hold it up.
STEP_END_S = 10.0

Clients = Mapping[str, ForkServerClient]


class ServerSteps:
    """Steps of this process's job.

    Args:
        container: words that are put before the container's own `python3`.
        components: of the job; a step is of one of them.
    """

    def __init__(self, container: Sequence[str], components: Sequence[Component]) -> None:
        self._words = fork_server_words(container)
        self._components = components
        self._packages: Path | None = None

    def import_from(self, packages: Path) -> None:
        """Let the fork servers to come find Python's packages in a folder of their host."""
        self._packages = packages

    @contextmanager
    def open(self, cores: Mapping[str, int], *, beside: bool = False) -> Iterator[Clients]:
        """One step for each component, with a fork server on each of the hosts; all are ready.

        Args:
            cores: how many the step gets of every host.
            beside: another step may still hold the same cores.

        Raises:
            HostFault: one does not come up.
        """
        with scratch_folder(scratch_parent()) as folder, ExitStack() as stack:
            parts = [(each, _part(each, cores)) for each in self._components]
            # All begin before any is waited for: fork servers import for seconds.
            steps = [
                self._begin(folder / f"step{number}.log", component, part, stack, beside=beside)
                for number, (component, part) in enumerate(parts)
                if part
            ]
            clients = {host: client for step in steps for host, client in step.let_in().items()}
            for step in steps:
                stack.callback(step.program.status, STEP_END_S)
            for client in clients.values():
                stack.callback(client.close)
            yield clients

    def _begin(
        self,
        log: Path,
        component: Component,
        cores: Mapping[str, int],
        stack: ExitStack,
        *,
        beside: bool,
    ) -> BegunStep:
        """Start a step whose fork servers will call."""
        token = secrets.token_hex(16)
        listener = stack.enter_context(socket.create_server(("", 0), backlog=BACKLOG))
        callers = [f"{address}:{listener.getsockname()[1]}" for address in own_addresses()]
        command = [*self._words, "--connect", ",".join(callers)]
        group = component.het_group
        words = step_words(cores, str(ROOT), command, beside=beside, het_group=group)
        told = (
            {} if group is not None else gpus_of_part(os.environ, len(cores), len(component.cores))
        )
        program = start_in_background(words, log, self._environment(token) | told)
        stack.callback(program.end)
        return BegunStep(program, listener, tuple(cores), token, log)

    def _environment(self, token: str) -> dict[str, str]:
        environment = step_environment(fork_server_environment(os.environ)) | {TOKEN: token}
        if self._packages is not None:
            first = [str(self._packages), environment["PYTHONPATH"]]
            environment["PYTHONPATH"] = os.pathsep.join(first)
        return environment


def _part(component: Component, cores: Mapping[str, int]) -> dict[str, int]:
    return {host: count for host, count in cores.items() if host in component.cores}


@dataclass(frozen=True, slots=True)
class BegunStep:
    """A step whose fork servers call one by one."""

    program: BackgroundProcess
    listener: socket.socket
    hosts: tuple[str, ...]
    token: str
    log: Path

    def let_in(self) -> Clients:
        """Wait until all have called; then nobody else can.

        Raises:
            HostFault: one does not come up.
        """
        with self.listener:
            return let_in(self.listener, self.hosts, self.token, self.log, self._gone)

    def _gone(self) -> str:
        """Why no fork server is to be expected any more; empty as long as one is."""
        status = self.program.status()
        if status is None:
            return ""
        lines = last_lines(self.log).splitlines()
        end = " / ".join([line for line in lines if not CHATTER.match(line)][-3:])
        return f"srun ended with status {status} before all hosts were up: {end}"


class KeptServers:
    """Fork servers that serve one run after another.

    Args:
        steps: bring new ones onto hosts.
    """

    def __init__(self, steps: ServerSteps) -> None:
        self._steps = steps
        self._open = ExitStack()
        self._clients: dict[str, ForkServerClient] = {}

    def ready(self, cores: Mapping[str, int]) -> HostServers:
        """A server on each of the hosts: one that serves already, or a new one.

        Args:
            cores: how many a new step gets of every host.

        Raises:
            HostFault: one does not come up; then all are ended, and the next step finds nothing
                in its way.
        """
        missing = {host: count for host, count in cores.items() if not self._serves(host)}
        try:
            for count in dict.fromkeys(missing.values()):  # a step gets as many of all its hosts
                self._start({host: each for host, each in missing.items() if each == count})
        except BaseException:
            self.close()
            raise
        return HostServers({host: self._clients[host] for host in cores})

    def _serves(self, host: str) -> bool:
        client = self._clients.get(host)
        if client is None:
            return False
        if not client.is_well():
            client.close()  # which ends what is silent
        return not client.lost

    def _start(self, cores: Mapping[str, int]) -> None:
        # A step goes on where a server of it is lost, and holds what it was given.
        beside = any(host in self._clients for host in cores)
        self._clients |= self._open.enter_context(self._steps.open(cores, beside=beside))

    def close(self) -> None:
        """End all servers, at the same time, and their steps."""
        for client in self._clients.values():
            client.close()
        self._open.close()
        self._clients = {}
