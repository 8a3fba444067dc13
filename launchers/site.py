"""What a launcher needs of the place where its hosts are.

A site knows its hosts and gets fork servers onto them: on this machine, in network namespaces, by
`srun`, by `ssh`.  Everything else about a run is the same everywhere (`launchers.run`).
"""

from __future__ import annotations

import ipaddress
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Self

from launchers.fork_servers.client import ForkServerClient
from launchers.fork_servers.host_servers import HostServers
from launchers.scheduler import Scheduler
from launchers.settings import COMMON_SETTINGS, LauncherSettings, option_of
from ps_allreduce.errors import UserError
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.layout import Placed, place_tasks
from ps_allreduce.point.network import EmulatedNetwork
from ps_allreduce.record.hosts import HostFacts, Interface, describe_difference, kinds

LOOPBACK = "lo"


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """What to do about hosts that do not suit, in the words of whoever hands them out.

    Attributes:
        own_disk: folders that may be on a host's own disk.
    """

    alike: str = "use hosts that are alike"
    memory: str = "end what else runs there, or use fewer tasks per host"
    gpus: str = "look at nvidia-smi there"
    own_disk: str = "/tmp, /scratch/local"


class Site(ABC):
    """Hosts, and the way onto them.  Used as a context: nothing it started outlives it.

    Attributes:
        hosts: names, in the order in which they are used; those named for servers are the last.
        num_ps_hosts: how many those are.
        one_machine: the hosts share the cores of this machine.
        shares_files: all hosts see the same files, so that input is prepared once.
        job_id: of the scheduler's job; None without one.
        congestion: this machine's TCP congestion control where tasks use it; empty where hosts have
            their own, or the emulated network states it.
    """

    hosts: Sequence[str] = ()
    num_ps_hosts: int = 0
    one_machine: bool = False
    shares_files: bool = True
    job_id: str | None = None
    congestion: str = ""
    advice: Advice = Advice()

    def __enter__(self) -> Self:
        return self

    @abstractmethod
    def __exit__(self, *_: object) -> None:
        """End everything that was started."""

    @abstractmethod
    def cores(self) -> Mapping[str, Sequence[int]]:
        """The cores of every host, as far as they are known without asking it."""

    @abstractmethod
    def servers(
        self, cores: Mapping[str, int], experiment: Experiment | None
    ) -> AbstractContextManager[HostServers]:
        """Fork servers that are ready, for one run or job.

        Args:
            cores: the hosts, in their order, and how many cores of each will be used.
            experiment: what they are for, None for a job that is no run.

        Raises:
            HostFault: one does not come up.
        """

    @property
    def worker_hosts(self) -> Sequence[str]:
        """The hosts that are not named for servers."""
        return self.hosts[: len(self.hosts) - self.num_ps_hosts]

    @property
    def ps_hosts(self) -> Sequence[str]:
        """The hosts that are named for servers, which no worker gets."""
        return self.hosts[len(self.worker_hosts) :]

    def place(self, experiment: Experiment) -> Placed:
        """The host of every task.

        Raises:
            UserError: there are too few hosts.
        """
        return place_tasks(experiment, self.worker_hosts, self.ps_hosts)

    @property
    def is_emulating(self) -> bool:
        """Several hosts share the cores of this machine."""
        return self.one_machine and len(self.hosts) > 1

    def check(self, experiment: Experiment) -> None:  # noqa: B027
        """Refuse what this site cannot run although it fits on the hosts.

        Raises:
            UserError: with the reason and what to do.
        """

    def preset_address(self, host: str) -> str | None:
        """The address of a host's tasks where none is asked for; None: look at its interfaces."""
        return None

    def address_of(self, client: ForkServerClient, wanted: str | None) -> str:
        """The address that the tasks of a host are reached by, as `task_address` chooses it."""
        interfaces, preset = client.ready.facts.interfaces, self.preset_address(client.host)
        return task_address(client.host, interfaces, wanted, preset)

    def dropped(self) -> Mapping[str, int]:
        """Packets so far that were lost on the way to each host, where the network can be asked.

        Raises:
            HostFault: it does not answer.
        """
        return {}

    def time_left_s(self) -> float | None:
        """How long runs may still be made; None without a limit."""
        return None

    def is_over(self) -> bool:
        """The scheduler has ended the job, so that no further run can be made in it."""
        return False

    def post_mortem(self) -> str:
        """What is known outside of the tasks about the end of a run; empty if nothing."""
        return ""

    def refuse_mixture(self, facts: Mapping[str, HostFacts]) -> None:
        """See that all hosts are of one kind; those named for servers may be of another one.

        Args:
            facts: by the names of the hosts here.

        Raises:
            UserError: they are not.
        """
        if mixture := describe_mixture(facts, self.ps_hosts):
            raise UserError(
                f"the hosts are of {mixture}; {self.advice.alike}, or overrule with --mixed-hosts."
            )

    def avoid(self, hosts: Sequence[str]) -> str:
        """How to ask for other hosts than these."""
        return f"Better without: {' '.join(hosts)}"


def describe_mixture(facts: Mapping[str, HostFacts], ps_hosts: Collection[str] = ()) -> str:
    """How many kinds there are, and what sets the first two apart; empty for hosts of one kind.

    Args:
        ps_hosts: may be of a kind of their own, but with the same software.
    """
    of_workers = [each for host, each in facts.items() if host not in ps_hosts]
    of_servers = [each for host, each in facts.items() if host in ps_hosts]
    return (
        _describe_kinds(of_workers)
        or _describe_kinds(of_servers)
        or _describe_software(of_workers, of_servers)
    )


def _describe_software(one: Sequence[HostFacts], other: Sequence[HostFacts]) -> str:
    """What sets the software of two kinds apart; empty if nothing does, or one is not there."""
    if not one or not other or one[0].versions == other[0].versions:
        return ""
    first, second = one[0], other[0]
    return (
        f"2 kinds of software: {first.name} and {second.name} differ in versions "
        f"{first.versions} and {second.versions}"
    )


def _describe_kinds(facts: Sequence[HostFacts]) -> str:
    hosts_by_kind = list(kinds(facts).values())
    if len(hosts_by_kind) < 2:
        return ""
    (one, *_), (two, *_) = hosts_by_kind[:2]
    facts_of = {each.name: each for each in facts}
    difference = describe_difference(facts_of[one], facts_of[two])
    return f"{len(hosts_by_kind)} kinds: {one} and {two} differ in {difference}"


def task_address(
    host: str, interfaces: Sequence[Interface], wanted: str | None, preset: str | None = None
) -> str:
    """The address that a host's tasks are reached by.

    Args:
        wanted: the name of an interface, a subnet (`10.1.0.0/16`) or an address; None takes the
            preset, or the first interface that is not the loopback.
        preset: what the site says about it.

    Raises:
        UserError: the host has no such interface.
    """
    if wanted is not None:
        candidates = [each for each in interfaces if _is_wanted(each, wanted)]
    elif preset is not None:
        return preset
    else:
        outside = [each for each in interfaces if each.name != LOOPBACK]
        candidates = outside or list(interfaces)
    if not candidates:
        listed = ", ".join(f"{i.name} ({i.address}/{i.prefix_length})" for i in interfaces)
        raise UserError(
            f"host {host} has no interface {wanted or 'with an address'}; it has: "
            f"{listed or 'none'}. Choose one with --interface, by name or by subnet."
        )
    return candidates[0].address


def _is_wanted(interface: Interface, wanted: str) -> bool:
    if interface.name == wanted:
        return True
    try:
        return ipaddress.ip_address(interface.address) in ipaddress.ip_network(wanted, strict=False)
    except ValueError:
        return False


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteKind:
    """One kind of site: what it is called, and what can be known before there is one.

    Attributes:
        name: of its launcher, as it is typed.
        understands: the fields of `LauncherSettings` that belong to it, besides `COMMON_SETTINGS`.
        make: the site that some settings describe; raises a `UserError` if they lack something.
        several_hosts: tasks are spread over hosts; False: all of them share this machine.
        network: the network that some settings describe; None: its networks are as they are.
        scheduler: that its hosts are asked from; None without one.
    """

    name: str
    make: Callable[[LauncherSettings], Site]
    understands: frozenset[str] = frozenset()
    several_hosts: bool = True
    network: Callable[[LauncherSettings], EmulatedNetwork] | None = None
    scheduler: Scheduler | None = None

    def refuse_others(self, settings: LauncherSettings) -> None:
        """See that nothing is stated that belongs to other launchers.

        Raises:
            UserError: something is.
        """
        for name in settings.stated:
            if name not in COMMON_SETTINGS | self.understands:
                raise UserError(
                    f"the launcher {self.name} has no use for {option_of(name)}; leave it out."
                )

    @property
    def on_this_machine(self) -> bool:
        """Its tasks compute on this machine and nowhere else."""
        return self.network is not None or not self.several_hosts
