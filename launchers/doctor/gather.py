"""Asks the hosts of a site everything that the checks want to know.

Decides the order: what would disturb a measurement comes after it.  A host that does not answer is
noted, and the others are looked at without it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from itertools import combinations
from pathlib import Path

from launchers.doctor.benchmarks import Pair, measure_all_links, measure_computing
from launchers.doctor.questions import Answers, ask_hosts
from launchers.doctor.sharing import try_sharing
from launchers.doctor.site_facts import HostCheck, SiteFacts
from launchers.fork_servers.client import ForkServerClient
from launchers.fork_servers.host_servers import HostServers, clock_offset
from launchers.site import Site
from ps_allreduce.errors import LaunchError
from ps_allreduce.fork_server.messages import EndAll
from ps_allreduce.inspection.questions import (
    AnswerCalls,
    CheckHost,
    CountGpus,
    Peer,
    grpc_proxies,
)
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
) -> SiteFacts:
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
        checks = {
            host: HostCheck(
                facts=client.ready.facts,
                address=site.address_of(client, interface),
                import_s=client.ready.import_s,
            )
            for host, client in servers.clients.items()
        }
        return CheckUp(servers, facts, results, tell, checks).run()


def _about(site: Site, results: Path, *, mixed_hosts: bool) -> SiteFacts:
    return SiteFacts(
        hosts=tuple(site.hosts),
        one_machine=site.one_machine,
        shares_files=site.shares_files,
        mixed_hosts=mixed_hosts,
        ask_for_alike=site.ask_for_alike,
        results=str(results),
        own_proxies=grpc_proxies(os.environ),
        own_digest=program_digest(),
        own_versions=package_versions(PACKAGES),
    )


@dataclass(slots=True)
class CheckUp:
    """The hosts while they are looked at.

    Attributes:
        checks: what is known of every host so far.
        troubles: why a host could not be looked at further; the first reason.
    """

    servers: HostServers
    facts: SiteFacts
    results: Path
    tell: Tell
    checks: dict[str, HostCheck]
    troubles: dict[str, str] = field(default_factory=dict)

    def run(self) -> SiteFacts:
        """Look at everything, one thing after the other."""
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
        return replace(self.facts, checked=self.checks, troubles=self.troubles)

    def _alive(self) -> dict[str, ForkServerClient]:
        """The lines to those that still answer."""
        return {host: client for host, client in self.servers.clients.items() if not client.lost}

    def _ask(
        self, requests: Mapping[str, object], deadline_s: float, until: str | None = None
    ) -> Answers:
        answers = ask_hosts(self.servers, requests, deadline_s, until)
        self.troubles = answers.troubles | self.troubles
        return answers

    def _look(self) -> None:
        """Have every host look at itself, and call all others."""
        peers = self._peers(self._listen() if len(self.checks) > 1 else {})
        requests = {
            host: CheckHost(
                peers=tuple(peer for peer in peers if peer.host != host),
                log=client.job_log("look"),
            )
            for host, client in self._alive().items()
        }
        for host, event in self._ask(requests, LOOK_S).of("state").items():
            self.checks[host] = replace(self.checks[host], state=event.state)
        for host, client in self._alive().items():
            with self._noting_trouble(host):
                client.send(EndAll())

    @contextmanager
    def _noting_trouble(self, host: str) -> Iterator[None]:
        try:
            yield
        except LaunchError as error:
            self.troubles.setdefault(host, str(error).splitlines()[0])

    def _listen(self) -> dict[str, int]:
        requests = {
            host: AnswerCalls(
                address=self.checks[host].address,
                name=self.checks[host].facts.name,
                log=client.job_log("listen"),
            )
            for host, client in self._alive().items()
        }
        answers = self._ask(requests, LISTEN_S, until="listening")
        return {host: event.counts["port"] for host, event in answers.of("listening").items()}

    def _peers(self, ports: Mapping[str, int]) -> list[Peer]:
        return [
            Peer(
                host=host,
                name=self.checks[host].facts.name,
                address=self.checks[host].address,
                port=port,
            )
            for host, port in ports.items()
        ]

    def _count_gpus(self) -> None:
        """As a worker sees them, whom a run shows those of its host, and as a server does."""
        for host, event in self._gpus_of(server=False).of("gpus").items():
            self.checks[host] = replace(
                self.checks[host],
                gpus_of_worker=event.counts["gpus"],
                gpu_problem=event.text,
            )
        for host, event in self._gpus_of(server=True).of("gpus").items():
            self.checks[host] = replace(self.checks[host], gpus_of_server=event.counts["gpus"])

    def _gpus_of(self, *, server: bool) -> Answers:
        requests = {}
        for host, client in self._alive().items():
            visible = "" if server else ",".join(g.identity for g in client.ready.facts.gpus)
            requests[host] = CountGpus(visible=visible, log=client.job_log("gpus"))
        return self._ask(requests, GPUS_S)

    def _compare_clocks(self) -> None:
        if self.facts.one_machine:
            return
        for host, client in self._alive().items():
            with self._noting_trouble(host):
                self.checks[host] = replace(self.checks[host], clock_offset_s=clock_offset(client))

    def _share_files(self) -> None:
        offsets = {host: check.clock_offset_s or 0.0 for host, check in self.checks.items()}
        shared = self.facts.shares_files
        servers = HostServers(self._alive())
        sharing = try_sharing(servers, self.results, offsets, shared=shared)
        self.facts = replace(self.facts, sharing=sharing)

    def _compute(self) -> None:
        """Hosts that share their cores would only show how they are shared."""
        hosts = list(self._alive())[: 1 if self.facts.one_machine else None]
        self.facts = replace(self.facts, flops=measure_computing(self.servers, hosts))

    def _measure_links(self) -> None:
        links, trouble = measure_all_links(
            HostServers(self._alive()),
            self._reachable_pairs(),
            lambda host: self.checks[host].address,
            self.tell,
        )
        self.facts = replace(self.facts, links=links, links_trouble=trouble)

    def _reachable_pairs(self) -> list[Pair]:
        def reaches(one: str, other: str) -> bool:
            state = self.checks[one].state
            peer = None if state is None else state.peers.get(other)
            return peer is not None and peer.unreached == ""

        pairs = combinations(self._alive(), 2)
        return [(a, b) for a, b in pairs if reaches(a, b) and reaches(b, a)]
