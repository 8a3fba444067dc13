"""The hosts of the Slurm job that this process is part of.

Decides that every run gets one step of its own, with one fork server per host: what is forked stays
inside the step's control group and binding, and ends with the step.  What is asked of the hosts
between runs shares one step.
"""

from __future__ import annotations

import os
import re
import secrets
import socket
import sysconfig
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Self

from launchers.fork_servers.callbacks import let_in, own_addresses
from launchers.fork_servers.client import ROOT, fork_server_environment, last_lines
from launchers.fork_servers.host_servers import HostServers
from launchers.processes import Background, fork_server_words, start_in_background
from launchers.sites.slurm.allocation import Allocation, read_allocation
from launchers.sites.slurm.broadcast import NodeCopy
from launchers.sites.slurm.jobs import explain_job, show_job, sick_nodes
from launchers.sites.slurm.step import step_environment, step_words
from ps_allreduce.errors import UserError
from ps_allreduce.fork_server.messages import TOKEN
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.scratch import scratch_prefix

STEP_END_S = 10.0

#: Lines that say nothing of why a step ended.
TENSORFLOW_CHATTER = re.compile(r"[IW]\d{4} |\d{4}-\d\d-\d\d .*: I |To enable the following")

#: Of a job that has its nodes for itself, as `scontrol show job` tells.
WHOLE_NODES = ("NO", "EXCLUSIVE")


class SlurmSite:
    """A job's hosts, in Slurm's order."""

    one_machine = False
    shares_files = True

    def __init__(
        self,
        container: Sequence[str] = (),
        *,
        shared_nodes: bool = False,
        copy_environment: bool = False,
    ) -> None:
        self._allocation: Allocation = read_allocation(os.environ)
        self._command = fork_server_words(container)
        self._shared_nodes = shared_nodes
        self._copy_environment = copy_environment
        self._copied: NodeCopy | None = None
        self._idle = ExitStack()
        self._idle_servers: HostServers | None = None
        self.hosts = self._allocation.hosts
        self.job_id: str | None = self._allocation.job_id

    def __enter__(self) -> Self:
        job = show_job(self._allocation.job_id)
        shared = job.get("OverSubscribe", WHOLE_NODES[0]) not in WHOLE_NODES
        if shared and not self._shared_nodes:
            raise UserError(
                f"job {self._allocation.job_id} does not have its nodes for itself: others would "
                "disturb the measurement, and TensorFlow's servers obey whoever reaches them. Ask "
                "for --exclusive, or accept it with --shared-nodes."
            )
        if self._copy_environment:
            self._copied = NodeCopy(self.hosts, Path(sysconfig.get_path("purelib")))
            self._copied.spread()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Every run ends its own step; what is between runs, and a copy of packages, ends here."""
        self._idle.close()
        if self._copied is not None:
            self._copied.remove()

    def check(self, experiment: Experiment) -> None:
        """Whatever fits on the hosts can be run."""

    def cores(self) -> Mapping[str, Sequence[int]]:
        """As many as the job was granted; which ones, the step tells."""
        counts = zip(self.hosts, self._allocation.num_cores, strict=True)
        return {host: range(count) for host, count in counts}

    @contextmanager
    def servers(
        self, cores: Mapping[str, int], experiment: Experiment | None
    ) -> Iterator[HostServers]:
        """One step with a fork server on each of the hosts."""
        if experiment is None:
            servers = self._between_runs()
            yield HostServers({host: servers.clients[host] for host in cores})
            return
        self._idle.close()
        with self._step(cores) as servers:
            yield servers

    def _between_runs(self) -> HostServers:
        """One step on all hosts for everything that is no run; it ends when a run begins."""
        idle = self._idle_servers
        if idle is not None and any(client.lost for client in idle.clients.values()):
            self._idle.close()
        if self._idle_servers is None:
            everywhere = {host: len(cores) for host, cores in self.cores().items()}
            self._idle_servers = self._idle.enter_context(self._step(everywhere))
            self._idle.callback(self._forget_idle)
        return self._idle_servers

    def _forget_idle(self) -> None:
        self._idle_servers = None

    @contextmanager
    def _step(self, cores: Mapping[str, int]) -> Iterator[HostServers]:
        token = secrets.token_hex(16)
        with (
            tempfile.TemporaryDirectory(prefix=scratch_prefix()) as folder,
            socket.create_server(("", 0)) as listener,
        ):
            log = Path(folder) / "step.log"
            step = self._start(cores, listener.getsockname()[1], token, log)
            try:
                clients = let_in(listener, list(cores), token, log, lambda: _gone(step, log))
                try:
                    yield HostServers(clients)
                finally:
                    for client in clients.values():
                        client.close()
                    step.wait(STEP_END_S)
            finally:
                step.end()

    def _start(self, cores: Mapping[str, int], port: int, token: str, log: Path) -> Background:
        callers = ",".join(f"{address}:{port}" for address in own_addresses())
        words = step_words(cores, str(ROOT), [*self._command, "--connect", callers])
        environment = step_environment(fork_server_environment(os.environ)) | {TOKEN: token}
        if self._copied is not None:
            first = [str(self._copied.folder), environment["PYTHONPATH"]]
            environment["PYTHONPATH"] = os.pathsep.join(first)
        return start_in_background(words, log, environment)

    def preset_address(self, host: str) -> None:
        """Whatever the host's interfaces say."""

    def time_left_s(self) -> float | None:
        """Until the job's limit."""
        end = show_job(self._allocation.job_id).get("EndTime", "")
        with suppress(ValueError):
            return datetime.fromisoformat(end).timestamp() - time.time()
        return None

    def is_over(self) -> bool:
        """The job runs no more; a command of `salloc` is not told so by any signal."""
        job = show_job(self._allocation.job_id)
        return bool(job) and job.get("JobState") != "RUNNING"

    def post_mortem(self) -> str:
        """What Slurm says about the job and its nodes."""
        job_id = self._allocation.job_id
        said = [explain_job(job_id), sick_nodes(self.hosts)]
        if not any(said) and self.is_over():
            return f"job {job_id} was ended"
        return "; ".join(filter(None, said))


def _gone(step: Background, log: Path) -> str:
    """Why no fork server is to be expected any more; empty as long as one is."""
    status = step.status()
    if status is None:
        return ""
    lines = last_lines(log).splitlines()
    said = " / ".join([line for line in lines if not TENSORFLOW_CHATTER.match(line)][-3:])
    return f"srun ended with status {status} before all hosts were up: {said}"
