"""A real Slurm on emulated hosts: a controller `login`, and one slurmd per node.

Decides how Slurm is configured, and that nothing of it outlives the context.  Every node has
a network, processes, a host name and a /tmp of its own; the end of its first process ends all
that runs on it, as when a machine fails.  The network is that of `launchers.sites.emulated`;
what is tested on the cluster is not known here.
"""

from __future__ import annotations

import os
import secrets
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from launchers.sites.emulated.held_network import EmulatedHost, hold_network
from ps_allreduce.errors import LaunchError, UserError
from ps_allreduce.point.network import EmulatedNetwork
from tests.real.machines import SEARCH_PATH, Machines, missing_for, wait_until

LOGIN = "login"

NAMES = ("n8", "n9", "n10", "n11")

ROOT = Path(__file__).resolve().parents[2]

#: Sockets, of which slurmstepd makes the longest names below the folder, have at most 107 bytes.
MAX_FOLDER_LENGTH = 70

UP_DEADLINE_S = 60.0

SLURM_CONF = """\
ClusterName=emulated
SlurmctldHost={login.name}({login.address})
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={folder}/munge/socket
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool/%n
SlurmctldPidFile={folder}/state/slurmctld.pid
SlurmdPidFile={folder}/state/%n.pid
SlurmctldLogFile={folder}/log/slurmctld.log
SlurmdLogFile={folder}/log/%n.log
SlurmctldDebug=verbose
SlurmdDebug=verbose
MailProg=/bin/true
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin={task_plugin}
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
TopologyPlugin=topology/tree
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=1,sched_interval=1,batch_sched_delay=0
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
DefMemPerCPU={memory_per_cpu}
PreemptType=preempt/partition_prio
PreemptMode=CANCEL
KillWait=5
MinJobAge=300
ReturnToService=2
SlurmctldTimeout=30
SlurmdTimeout=10
MessageTimeout=5
# Nodes claim processors and memory that this machine may not have.
SlurmdParameters=config_overrides
{nodes}
PartitionName=lab Nodes=ALL Default=YES PriorityTier=1 MaxTime=INFINITE State=UP
PartitionName=urgent Nodes=ALL PriorityTier=10 PreemptMode=OFF MaxTime=INFINITE State=UP
"""

NODE = (
    "NodeName={host.name} NodeAddr={host.address} NodeHostname={host.name} "
    "Sockets=1 CoresPerSocket={cpus} ThreadsPerCore=1 RealMemory={memory} State=UNKNOWN"
)

MEMORY_PER_CPU_MB = 4000

#: Run a command where host names are known.
WITH_NAMES = 'mount --bind "$1" /etc/hosts && shift && exec "$@"'

#: The first process of a node: /tmp is its own, but for the folders before "--"; it reaps orphans.
#: What a shell starts in the background ignores SIGINT, and would hand that down to all jobs.
BECOME_NODE = """\
set -e
mount --bind "$1" /etc/hosts
own=$2
shift 2
mount -t tmpfs -o mode=1777 tmp "$own"
while [ "$1" != -- ]; do
    mkdir -p "$own/${1#/tmp}"
    mount --bind "$1" "$own/${1#/tmp}"
    shift
done
shift
mount --move "$own" /tmp
env --default-signal "$@" &
wait
"""


def missing_for_slurm() -> str:
    """What this machine lacks for a cluster, in words; empty if nothing."""
    return missing_for("Slurm", ("munged", "slurmctld", "slurmd", "srun"))


def render_slurm_conf(folder: Path, hosts: Sequence[EmulatedHost], cpus_per_node: int) -> str:
    """slurm.conf; steps are bound to cores where this machine has as many as a node claims."""
    memory = MEMORY_PER_CPU_MB * cpus_per_node
    binds = cpus_per_node <= len(os.sched_getaffinity(0))
    return SLURM_CONF.format(
        login=hosts[0],
        folder=folder,
        task_plugin="task/affinity" if binds else "task/none",
        memory_per_cpu=MEMORY_PER_CPU_MB,
        nodes="\n".join(
            NODE.format(host=host, cpus=cpus_per_node, memory=memory) for host in hosts[1:]
        ),
    )


def render_topology(network: EmulatedNetwork, names: Sequence[str]) -> str:
    """topology.conf: a leaf switch per rack of the network that has nodes, and one above.

    Args:
        names: of all hosts; the first is no node.
    """
    leaves: dict[str, list[str]] = {}
    for host, name in enumerate(names[1:], start=1):
        leaves.setdefault(f"leaf{network.rack_of(host)}", []).append(name)
    lines = [f"SwitchName={leaf} Nodes={','.join(nodes)}" for leaf, nodes in leaves.items()]
    return "\n".join([*lines, f"SwitchName=core Switches={','.join(leaves)}", ""])


class SlurmCluster(Machines):
    """A cluster that is up.

    Attributes:
        folder: on all hosts the same, as is what else they share.
        work: a folder inside, in which everybody may write; commands start there.
        login: the host of the controller and of the users' commands.
        nodes: in the order in which they were asked for.
    """

    def __init__(self, folder: Path, hosts: Sequence[EmulatedHost], shared: Sequence[Path]) -> None:
        super().__init__(hosts)
        self.folder = folder
        self.work = folder / "work"
        self.login = hosts[0]
        self.nodes = tuple(hosts[1:])
        self._shared = shared

    @property
    def environment(self) -> dict[str, str]:
        """Of all commands: ours, but for what an outer Slurm may have left in it."""
        ours = {name: text for name, text in os.environ.items() if not name.startswith("SLURM_")}
        return ours | {"PATH": SEARCH_PATH, "SLURM_CONF": str(self.folder / "slurm.conf")}

    def words(self, words: Sequence[str]) -> tuple[str, ...]:
        """A command as it is run on `login`; the process started becomes the command itself."""
        bind = ("unshare", "--mount", "sh", "-c", WITH_NAMES, "sh", str(self.folder / "hosts"))
        return (*self.login.enter, *bind, "setpriv", "--pdeathsig=KILL", "--", *words)

    def run(
        self,
        words: Sequence[str],
        *,
        timeout_s: float = 60.0,
        **options: Any,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command on `login` to its end; further options are those of `subprocess.run`.

        Raises:
            subprocess.TimeoutExpired: it took too long, and was killed.
        """
        return subprocess.run(
            self.words(words),
            timeout=timeout_s,
            **{"capture_output": True, "check": False, **self._defaults, **options},
        )

    def output(self, *words: str) -> str:
        """What a command says that must succeed.

        Raises:
            LaunchError: it failed.
        """
        done = self.run(words)
        if done.returncode:
            raise LaunchError(f"{shlex.join(words)}: {done.stderr.strip()}")
        return done.stdout.strip()

    def popen(self, words: Sequence[str], **options: Any) -> subprocess.Popen[str]:
        """Start a command on `login`, which leads a session; further options are those of Popen."""
        process: subprocess.Popen[str] = subprocess.Popen(
            self.words(words), **{"start_new_session": True, **self._defaults, **options}
        )
        self._started.append(process)
        return process

    @property
    def _defaults(self) -> dict[str, Any]:
        stdin = subprocess.DEVNULL
        return {"cwd": self.work, "env": self.environment, "stdin": stdin, "text": True}

    def node_states(self) -> dict[str, str]:
        """The nodes' states in lower case, such as `idle`, `down*` or `mixed`."""
        lines = self.output("sinfo", "--noheader", "--Node", "--partition=lab", "--format=%N %T")
        return dict(line.split() for line in lines.splitlines())

    def wait_until_idle(self) -> None:
        """Wait until every node is up and has nothing to do.

        Raises:
            LaunchError: one was not in time; the controller's last words are in the message.
        """

        def is_idle() -> bool:
            with suppress(LaunchError):
                return set(self.node_states().values()) == {"idle"}
            return False

        wait_until(is_idle, UP_DEADLINE_S, lambda: self._log_of("slurmctld"))

    def own_tmp(self, name: str) -> Path:
        """The /tmp of a node that is up, as it can be read from outside."""
        pid = next(pid for pid, line in self.processes(name).items() if line.startswith("slurmd "))
        return Path(f"/proc/{pid}/root/tmp")

    def start_node(self, name: str) -> None:
        """Start a node that was killed or never started; see `wait_until_idle`."""
        own = self.folder / "own" / name
        for folder in (own, self.folder / "spool" / name):
            folder.mkdir(parents=True, exist_ok=True)
        folders = [self.folder / "become_node", self.folder / "hosts", own, *self._shared]
        self._start(
            name,
            *self.hosts[name].enter,
            *("setpriv", "--pdeathsig=KILL", "--"),
            *("unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"),
            *("sh", *map(str, folders), "--"),
            *("slurmd", "-D", "-N", name),
        )

    def bring_up(self) -> None:
        """Start all daemons and wait until every node is idle."""
        munge = self.folder / "munge"
        files = [f"--{name}-file={munge / name}" for name in ("key", "pid", "log", "seed")]
        self._start(
            "munged",
            *("setpriv", "--pdeathsig=KILL", "--", "munged", "--foreground", "--force"),
            *(f"--socket={munge / 'socket'}", *files),
        )
        wait_until((munge / "socket").exists, UP_DEADLINE_S, lambda: self._log_of("munged"))
        self._start("slurmctld", *self.words(("slurmctld", "-D", "-c")))
        for node in self.nodes:
            self.start_node(node.name)
        self.wait_until_idle()

    def _start(self, name: str, *words: str) -> None:
        log = self.folder / "log" / f"{name}.out"
        self.start(words, log, cwd=self.folder, env=self.environment, start_new_session=True)

    def _log_of(self, name: str) -> str:
        text = (self.folder / "log" / f"{name}.out").read_text(encoding="utf-8", errors="replace")
        return f"{name} did not come up:\n" + "\n".join(text.splitlines()[-10:])


@contextmanager
def slurm_cluster(
    folder: Path,
    *,
    names: Sequence[str] = NAMES,
    cpus_per_node: int = 2,
    network: EmulatedNetwork | None = None,
) -> Iterator[SlurmCluster]:
    """A cluster for as long as the context lasts; its processes are then gone, its logs are not.

    Below /tmp all hosts see its folder, the checkout and Python; the rest is every node's own.

    Args:
        folder: of configuration, state and logs; short, and open to other users if they are to use
            the cluster.
        names: of the nodes, in the order in which Slurm gets to know them.
        cpus_per_node: steps are bound to their cores if this machine has as many.
        network: whose host 0 is `login`; without one, two racks with links of any speed.

    Raises:
        UserError: the folder's path is too long, or this machine allows no such network.
        LaunchError: the cluster did not come up; the daemons' last words are in the message.
    """
    hosts = (LOGIN, *names)
    network = network or EmulatedNetwork(num_hosts=len(hosts), bits_per_s=None, racks=2)
    _lay_out(folder)
    with hold_network(network, hosts) as held:
        (folder / "slurm.conf").write_text(render_slurm_conf(folder, held.hosts, cpus_per_node))
        (folder / "topology.conf").write_text(render_topology(network, hosts))
        (folder / "hosts").write_text(_render_hosts(held.hosts))
        (folder / "become_node").write_text(BECOME_NODE)
        everywhere = (folder, ROOT, Path(sys.prefix), Path(sys.base_prefix))
        below = [path for path in everywhere if path.is_relative_to("/tmp")]
        cluster = SlurmCluster(folder, held.hosts, below)
        try:
            cluster.bring_up()
            yield cluster
        finally:
            cluster.end()


def _lay_out(folder: Path) -> None:
    if len(str(folder)) > MAX_FOLDER_LENGTH:
        raise UserError(
            f"{folder} is too long for the sockets of Slurm below it; choose a folder whose path "
            f"has at most {MAX_FOLDER_LENGTH} characters."
        )
    for name in ("state", "spool", "munge"):
        shutil.rmtree(folder / name, ignore_errors=True)
    for name in ("state", "spool", "munge", "log", "own", "work"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / "work").chmod(0o1777)
    key = folder / "munge" / "key"
    key.touch(mode=0o600)
    key.write_bytes(secrets.token_bytes(1024))


def _render_hosts(hosts: Sequence[EmulatedHost]) -> str:
    lines = [f"{host.address} {host.name}" for host in hosts]
    return "\n".join(["127.0.0.1 localhost", *lines, ""])
