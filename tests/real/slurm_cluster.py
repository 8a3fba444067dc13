"""A real Slurm on emulated hosts: a controller `login`, and one slurmd per node.

Decides how Slurm is configured, and that nothing of it outlives the context.  Every node has
a network, processes, a host name and a /tmp of its own; the end of its first process ends all
that runs on it, as when a machine fails.  The network is that of `launchers.sites.emulated`;
what is tested on the cluster is not known here.

    python -m tests.real.slurm_cluster up FOLDER
"""

from __future__ import annotations

import os
import pwd
import re
import secrets
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

import click

from launchers.sites.emulated.held_network import EmulatedHost, hold_network
from ps_allreduce.errors import LaunchError, UserError
from ps_allreduce.point.network import EmulatedNetwork

LOGIN = "login"

NAMES = ("n8", "n9", "n10", "n11")

PROGRAMS = ("munged", "slurmctld", "slurmd", "srun", "nsenter", "unshare", "setpriv", "ip")

#: Debian keeps daemons where ordinary users do not look.
SEARCH_PATH = f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin"

ROOT = Path(__file__).resolve().parents[2]

#: Sockets, of which slurmstepd makes the longest names below the folder, have at most 107 bytes.
MAX_FOLDER_LENGTH = 70

UP_DEADLINE_S = 60.0

GONE_DEADLINE_S = 20.0

POLL_S = 0.1

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
    if os.geteuid() != 0:
        return "Slurm on emulated hosts needs root"
    missing = [name for name in PROGRAMS if shutil.which(name, path=SEARCH_PATH) is None]
    return f"{', '.join(missing)} not found" if missing else ""


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


def parse_record(line: str) -> dict[str, str]:
    """A job or node as `scontrol --oneliner` shows it."""
    return dict(re.findall(r"(?:^|(?<= ))([A-Z][\w/:]*)=(.*?)(?= [A-Z][\w/:]*=|\s*$)", line))


def processes_in(network: int) -> dict[int, str]:
    """Command lines of the living processes in a network namespace, given its inode."""
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with suppress(OSError):  # it has ended, or is a zombie
                if (entry / "ns/net").stat().st_ino == network:
                    words = (entry / "cmdline").read_bytes().split(b"\0")
                    found[int(entry.name)] = b" ".join(words).decode(errors="replace").strip()
    return found


class SlurmCluster:
    """A cluster that is up.

    Attributes:
        folder: on all hosts the same, as is what else they share.
        work: a folder inside, in which everybody may write; commands start there.
        login: the host of the controller and of the users' commands.
        nodes: in the order in which they were asked for.
    """

    def __init__(self, folder: Path, hosts: Sequence[EmulatedHost], shared: Sequence[Path]) -> None:
        self.folder = folder
        self.work = folder / "work"
        self.login = hosts[0]
        self.nodes = tuple(hosts[1:])
        self._shared = shared
        self._hosts = {host.name: host for host in hosts}
        self._networks = {host.name: _inode_of_network(host) for host in hosts}
        self._started: list[subprocess.Popen[Any]] = []

    @property
    def environment(self) -> dict[str, str]:
        """Of all commands: ours, but for what an outer Slurm may have left in it."""
        ours = {name: text for name, text in os.environ.items() if not name.startswith("SLURM_")}
        return ours | {"PATH": SEARCH_PATH, "SLURM_CONF": str(self.folder / "slurm.conf")}

    def words(self, words: Sequence[str], *, user: str | None = None) -> tuple[str, ...]:
        """A command as it is run on `login`; the process started becomes the command itself."""
        bind = ("unshare", "--mount", "sh", "-c", WITH_NAMES, "sh", str(self.folder / "hosts"))
        ours = ("setpriv", "--pdeathsig=KILL")
        if user is None:
            return (*self.login.enter, *bind, *ours, "--", *words)
        account = pwd.getpwnam(user)
        identity = (f"--reuid={user}", f"--regid={account.pw_gid}", "--init-groups", "--")
        home = ("env", f"HOME={account.pw_dir}", f"USER={user}", f"LOGNAME={user}")
        return (*self.login.enter, *bind, *ours, *identity, *home, *words)

    def run(
        self,
        words: Sequence[str],
        *,
        user: str | None = None,
        timeout_s: float = 60.0,
        **options: Any,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command on `login` to its end; further options are those of `subprocess.run`.

        Raises:
            subprocess.TimeoutExpired: it took too long, and was killed.
        """
        return subprocess.run(
            self.words(words, user=user),
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

    def popen(
        self, words: Sequence[str], *, user: str | None = None, **options: Any
    ) -> subprocess.Popen[str]:
        """Start a command on `login`, which leads a session; further options are those of Popen."""
        process: subprocess.Popen[str] = subprocess.Popen(
            self.words(words, user=user),
            **{"start_new_session": True, **self._defaults, **options},
        )
        self._started.append(process)
        return process

    @property
    def _defaults(self) -> dict[str, Any]:
        stdin = subprocess.DEVNULL
        return {"cwd": self.work, "env": self.environment, "stdin": stdin, "text": True}

    def job(self, job_id: int) -> dict[str, str]:
        """What the controller knows of a job, by the names of `scontrol show job`.

        Raises:
            LaunchError: it does not know the job.
        """
        return parse_record(self.output("scontrol", "--oneliner", "show", "job", str(job_id)))

    def wait_for_state(self, job_id: int, *states: str, timeout_s: float = 30.0) -> dict[str, str]:
        """Wait until a job is in one of the states, and return what is known of it then.

        Raises:
            LaunchError: it was not in time.
        """
        job: dict[str, str] = {}

        def arrived() -> bool:
            job.update(self.job(job_id))
            return job["JobState"] in states

        wait_until(arrived, timeout_s, lambda: f"job {job_id} is {job['JobState']}, not {states}")
        return job

    def node_states(self) -> dict[str, str]:
        """The nodes' states in lower case, such as `idle`, `down*` or `mixed`."""
        lines = self.output("sinfo", "--noheader", "--Node", "--partition=lab", "--format=%N %T")
        return dict(line.split() for line in lines.splitlines())

    def wait_for_nodes(self, state: str, *names: str, timeout_s: float = 30.0) -> None:
        """Wait until nodes, or all of them, are in a state.

        Raises:
            LaunchError: they were not in time.
        """
        wanted = names or tuple(node.name for node in self.nodes)
        wait_until(
            lambda: {self.node_states()[name] for name in wanted} == {state},
            timeout_s,
            lambda: f"nodes are {self.node_states()}, not {state}",
        )

    def processes(self, name: str) -> dict[int, str]:
        """Command lines of all that runs on a host, by process ids of this machine."""
        return processes_in(self._networks[name])

    def own_tmp(self, name: str) -> Path:
        """The /tmp of a node that is up, as it can be read from outside."""
        pid = next(pid for pid, line in self.processes(name).items() if line.startswith("slurmd "))
        return Path(f"/proc/{pid}/root/tmp")

    def kill_node(self, name: str) -> None:
        """Kill all that runs on a host; peers see its connections end, unless it is unplugged.

        Raises:
            LaunchError: a process cannot be killed.
        """
        self._kill_all_on([name])

    def _kill_all_on(self, names: Sequence[str]) -> None:
        left: dict[int, str] = {}

        def is_empty() -> bool:
            left.clear()
            for name in names:
                left.update(self.processes(name))
            for pid in left:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            return not left

        wait_until(is_empty, GONE_DEADLINE_S, lambda: f"still alive: {left}")

    def start_node(self, name: str) -> None:
        """Start a node that was killed or never started; see `wait_for_nodes`."""
        own = self.folder / "own" / name
        for folder in (own, self.folder / "spool" / name):
            folder.mkdir(parents=True, exist_ok=True)
        folders = [self.folder / "become_node", self.folder / "hosts", own, *self._shared]
        self._start(
            name,
            *self._hosts[name].enter,
            *("setpriv", "--pdeathsig=KILL", "--"),
            *("unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"),
            *("sh", *map(str, folders), "--"),
            *("slurmd", "-D", "-N", name),
        )

    def unplug(self, name: str) -> None:
        """Take the network from a host: nobody is told, peers hear nothing any more."""
        self._set_link(name, "down")

    def plug_in(self, name: str) -> None:
        """Give a host its network back."""
        self._set_link(name, "up")

    def _set_link(self, name: str, state: str) -> None:
        host = self._hosts[name]
        words = (*host.enter, "ip", "link", "set", "dev", host.interface, state)
        subprocess.run(words, check=True, timeout=10)

    def start(self) -> None:
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
        wait_until(self._all_idle, UP_DEADLINE_S, lambda: self._log_of("slurmctld"))

    def _all_idle(self) -> bool:
        with suppress(LaunchError):
            return set(self.node_states().values()) == {"idle"}
        return False

    def _start(self, name: str, *words: str) -> None:
        with (self.folder / "log" / f"{name}.out").open("ab") as log:
            process = subprocess.Popen(
                words,
                cwd=self.folder,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._started.append(process)

    def _log_of(self, name: str) -> str:
        text = (self.folder / "log" / f"{name}.out").read_text(encoding="utf-8", errors="replace")
        return f"{name} did not come up:\n" + "\n".join(text.splitlines()[-10:])

    def end(self) -> None:
        """Kill all that runs on all hosts, and reap what was started from here."""
        self._kill_all_on(list(self._hosts))
        for process in self._started:
            process.kill()  # munged is on no host
            process.wait(GONE_DEADLINE_S)


@contextmanager
def slurm_cluster(
    folder: Path,
    *,
    names: Sequence[str] = NAMES,
    cpus_per_node: int = 2,
    network: EmulatedNetwork | None = None,
    shared: Sequence[Path] = (),
) -> Iterator[SlurmCluster]:
    """A cluster for as long as the context lasts; its processes are then gone, its logs are not.

    Args:
        folder: of configuration, state and logs; short, and open to other users if they are to use
            the cluster.
        names: of the nodes, in the order in which Slurm gets to know them.
        cpus_per_node: steps are bound to their cores if this machine has as many.
        network: whose host 0 is `login`; without one, two racks with links of any speed.
        shared: folders below /tmp that all hosts see, besides the cluster's, the checkout and
            Python's. The rest of /tmp is every node's own.

    Raises:
        UserError: the folder's path is too long, or this machine allows no such network.
        LaunchError: the cluster did not come up; the daemons' last words are in the message.
    """
    hosts = (LOGIN, *names)
    network = network or EmulatedNetwork(num_hosts=len(hosts), bits_per_s=None, racks=2)
    with hold_network(network, hosts) as held:
        _lay_out(folder)
        (folder / "slurm.conf").write_text(render_slurm_conf(folder, held.hosts, cpus_per_node))
        (folder / "topology.conf").write_text(render_topology(network, hosts))
        (folder / "hosts").write_text(_render_hosts(held.hosts))
        (folder / "become_node").write_text(BECOME_NODE)
        everywhere = (folder, ROOT, Path(sys.prefix), Path(sys.base_prefix), *shared)
        below = [path for path in everywhere if path.is_relative_to("/tmp")]
        cluster = SlurmCluster(folder, held.hosts, below)
        try:
            cluster.start()
            yield cluster
        finally:
            cluster.end()


def wait_until(is_so: Callable[[], bool], timeout_s: float, describe: Callable[[], str]) -> None:
    """Ask ten times a second.

    Raises:
        LaunchError: it did not become so in time; the description says what is the case instead.
    """
    deadline = time.monotonic() + timeout_s
    while not is_so():
        if time.monotonic() > deadline:
            raise LaunchError(f"after {timeout_s:g} s, {describe()}")
        time.sleep(POLL_S)


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


def _inode_of_network(host: EmulatedHost) -> int:
    words = (*host.enter, "stat", "--dereference", "--format=%i", "/proc/self/ns/net")
    return int(subprocess.run(words, check=True, capture_output=True, timeout=10).stdout)


@click.group()
def main() -> None:
    """A real Slurm on emulated hosts, to try things by hand."""


@main.command()
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False, resolve_path=True))
@click.option("--nodes", default=",".join(NAMES), show_default=True, help="Names, with commas.")
@click.option("--cpus", default=2, show_default=True, help="Cores that every node claims.")
def up(folder: Path, nodes: str, cpus: int) -> None:
    """Bring a cluster up below FOLDER and keep it until Ctrl-C."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupt)
    try:
        with slurm_cluster(folder, names=nodes.split(","), cpus_per_node=cpus) as cluster:
            click.echo(f"export SLURM_CONF={shlex.quote(str(folder / 'slurm.conf'))}")
            click.echo(shlex.join(cluster.words(("bash",))))
            signal.pause()
    except KeyboardInterrupt:
        click.echo("\nThe cluster is gone.")
    except (UserError, LaunchError) as error:
        raise click.ClickException(str(error)) from error


def _interrupt(number: int, frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt


if __name__ == "__main__":
    main()
