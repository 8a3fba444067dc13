"""Asks the hosts of a site everything that the checks want to know.

Decides the order: what would disturb a measurement comes after it.  A host that does not answer is
noted and left behind; it keeps nobody from the rest.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from itertools import combinations
from pathlib import Path

from launchers.doctor.asking import Answers, ask_hosts
from launchers.doctor.facts import Facts, HostCheck
from launchers.doctor.pairs import Pair
from launchers.doctor.sharing import try_sharing
from launchers.doctor.speed import measure_all_links, measure_computing
from launchers.fork_servers.addresses import task_address
from launchers.fork_servers.host_servers import HostServers
from launchers.sites.protocol import Site
from ps_allreduce.errors import LaunchError
from ps_allreduce.fork_server.check_up_messages import (
    AnswerCalls,
    CheckHost,
    CountGpus,
    Peer,
    grpc_proxies,
)
from ps_allreduce.fork_server.messages import EndAll
from ps_allreduce.record.provenance import PACKAGES, package_versions, program_digest

LISTEN_S = 30.0

#: Names that nobody knows, and hosts that nobody reaches, cost many seconds.
LOOK_S = 180.0

GPUS_S = 60.0

#: What `tell` hears of, besides the rounds of links.
NUM_STEPS = 7

Tell = Callable[[str], None]


def gather(
    site: Site, results: Path, interface: str | None, *, mixed_hosts: bool, tell: Tell
) -> Facts:
    """Find out everything about the hosts of a site.

    Args:
        results: the results folder.
        interface: network that the tasks' addresses are to be of; None: what a run would use.
        tell: told what is being done, before it is done.

    Raises:
        UserError: the site refuses, or a host has no such network.
        LaunchError: the site itself does not come up.
    """
    with ExitStack() as stack:
        stack.enter_context(site)
        facts = _about(site, results, mixed_hosts=mixed_hosts)
        tell("starting fork servers")
        begin = time.monotonic()
        try:
            cores = {host: len(numbers) for host, numbers in site.cores().items()}
            servers = stack.enter_context(site.servers(cores, None))
        except LaunchError as error:
            return replace(facts, not_started=str(error))
        facts = replace(facts, start_s=time.monotonic() - begin)
        return CheckUp(servers, facts, results, tell).run(_addresses(site, servers, interface))


def _about(site: Site, results: Path, *, mixed_hosts: bool) -> Facts:
    return Facts(
        hosts=tuple(site.hosts),
        one_machine=site.one_machine,
        shares_files=site.shares_files,
        scheduled=site.job_id is not None,
        mixed_hosts=mixed_hosts,
        results=str(results),
        own_proxies=grpc_proxies(os.environ),
        own_digest=program_digest(),
        own_versions=package_versions(PACKAGES),
    )


def _addresses(site: Site, servers: HostServers, interface: str | None) -> dict[str, str]:
    return {
        host: task_address(
            host, client.ready.facts.interfaces, interface, site.preset_address(host)
        )
        for host, client in servers.clients.items()
    }


@dataclass(slots=True)
class CheckUp:
    """The hosts while they are looked at.

    Attributes:
        found: what is known so far.
        troubles: why a host could not be looked at further; the first reason.
    """

    servers: HostServers
    facts: Facts
    results: Path
    tell: Tell
    found: dict[str, HostCheck] = field(default_factory=dict)
    troubles: dict[str, str] = field(default_factory=dict)

    def run(self, addresses: Mapping[str, str]) -> Facts:
        """Look at everything, one thing after the other."""
        self.found = {
            host: HostCheck(
                facts=client.ready.facts, address=addresses[host], import_s=client.ready.import_s
            )
            for host, client in self.servers.clients.items()
        }
        steps = {
            "looking at hosts, names and ports": self._look,
            "counting GPUs": self._count_gpus,
            "comparing clocks": self._compare_clocks,
            "sharing files": self._share_files,
            "computing": self._compute,
            "measuring links": self._measure_links,
        }
        for doing, step in steps.items():
            self.tell(doing)
            step()
        return replace(self.facts, checked=self.found, troubles=self.troubles)

    def _hosts(self) -> list[str]:
        """Those that still answer."""
        return [host for host, client in self.servers.clients.items() if not client.lost]

    def _alive(self) -> HostServers:
        return HostServers({host: self.servers.clients[host] for host in self._hosts()})

    def _log(self, host: str, name: str) -> str:
        return f"{self.servers.clients[host].ready.scratch}/{name}.log"

    def _ask(
        self, requests: Mapping[str, object], deadline_s: float, until: str | None = None
    ) -> Answers:
        answers = ask_hosts(self.servers, requests, deadline_s, until)
        self.troubles = answers.troubles | self.troubles
        return answers

    def _look(self) -> None:
        """Have every host look at itself, and call all others."""
        ports = self._listen() if len(self.found) > 1 else {}
        requests = {
            host: CheckHost(peers=self._peers_of(host, ports), log=self._log(host, "look"))
            for host in self._hosts()
        }
        for host, event in self._ask(requests, LOOK_S).of("state").items():
            self.found[host] = replace(self.found[host], state=event.state)
        for host in self._hosts():
            self._send_end(host)

    def _send_end(self, host: str) -> None:
        try:
            self.servers.clients[host].send(EndAll())
        except LaunchError as error:
            self.troubles.setdefault(host, str(error).splitlines()[0])

    def _listen(self) -> dict[str, int]:
        requests = {
            host: AnswerCalls(
                address=self.found[host].address,
                name=self.found[host].facts.name,
                log=self._log(host, "listen"),
            )
            for host in self._hosts()
        }
        answers = self._ask(requests, LISTEN_S, until="listening")
        return {host: event.counts["port"] for host, event in answers.of("listening").items()}

    def _peers_of(self, host: str, ports: Mapping[str, int]) -> tuple[Peer, ...]:
        return tuple(
            Peer(
                host=other,
                name=self.found[other].facts.name,
                address=self.found[other].address,
                port=port,
            )
            for other, port in ports.items()
            if other != host
        )

    def _count_gpus(self) -> None:
        """As a worker sees them, whom a run shows those of its host, and as a server does."""
        for host, event in self._gpus_of(server=False).of("gpus").items():
            self.found[host] = replace(
                self.found[host],
                gpus_of_worker=event.counts["gpus"],
                gpu_problem=event.text,
            )
        for host, event in self._gpus_of(server=True).of("gpus").items():
            self.found[host] = replace(self.found[host], gpus_of_server=event.counts["gpus"])

    def _gpus_of(self, *, server: bool) -> Answers:
        visible = {
            host: "" if server else ",".join(gpu.identity for gpu in self.found[host].facts.gpus)
            for host in self._hosts()
        }
        requests = {
            host: CountGpus(visible=text, log=self._log(host, "gpus"))
            for host, text in visible.items()
        }
        return self._ask(requests, GPUS_S)

    def _compare_clocks(self) -> None:
        if self.facts.one_machine:
            return
        for host in self._hosts():
            alone = HostServers({host: self.servers.clients[host]})
            try:
                offset = alone.clock_offsets()[host]
            except LaunchError as error:
                self.troubles.setdefault(host, str(error).splitlines()[0])
            else:
                self.found[host] = replace(self.found[host], clock_offset_s=offset)

    def _share_files(self) -> None:
        offsets = {host: one.clock_offset_s or 0.0 for host, one in self.found.items()}
        shared = self.facts.shares_files
        sharing = try_sharing(self._alive(), self.results, offsets, shared=shared)
        self.facts = replace(self.facts, sharing=sharing)

    def _compute(self) -> None:
        """Hosts that share their cores would only show how they are shared."""
        hosts = self._hosts()[:1] if self.facts.one_machine else self._hosts()
        self.facts = replace(self.facts, flops=measure_computing(self.servers, hosts))

    def _measure_links(self) -> None:
        links, trouble = measure_all_links(
            self._alive(),
            self._reachable_pairs(),
            lambda host: self.found[host].address,
            self.tell,
        )
        self.facts = replace(self.facts, links=links, links_trouble=trouble)

    def _reachable_pairs(self) -> list[Pair]:
        def reaches(one: str, other: str) -> bool:
            state = self.found[one].state
            seen = None if state is None else state.peers.get(other)
            return seen is not None and seen.unreached == ""

        pairs = combinations(self._hosts(), 2)
        return [(a, b) for a, b in pairs if reaches(a, b) and reaches(b, a)]
