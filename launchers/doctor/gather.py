"""Asks the hosts of a site everything that the checks want to know.

Decides the order: what would disturb a measurement comes after it.  A host that does not answer is
noted, and the others are looked at without it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import combinations
from pathlib import Path

from launchers.doctor.check_findings import HostCheck, SiteFacts
from launchers.doctor.trials import (
    build_everywhere,
    measure_all_links,
    measure_computing,
    try_bursts,
    try_sharing,
)
from launchers.fork_servers.asking import Answers, ask_hosts, clock_offset
from launchers.fork_servers.client import ForkServerClient
from launchers.fork_servers.host_servers import HostServers
from launchers.settings import LauncherSettings
from launchers.site import Site
from ps_allreduce.errors import LaunchError
from ps_allreduce.fork_server.messages import EndAll
from ps_allreduce.inspection.questions import (
    Answer,
    AnswerCalls,
    CheckHost,
    CountGpus,
    GpusCounted,
    HostState,
    Listening,
    Peer,
    grpc_proxies,
)
from ps_allreduce.point.workload import Workload
from ps_allreduce.record.provenance import PACKAGES, package_versions, program_digest

LISTEN_S = 30.0

#: Names that nobody knows, and hosts that nobody reaches, cost many seconds.
LOOK_S = 180.0

GPUS_S = 60.0

#: What `tell` hears of, besides the rounds of links and a model.
NUM_STEPS = 8

Tell = Callable[[str], None]


def gather(
    site: Site,
    results: Path,
    interface: str | None,
    *,
    mixed_hosts: bool,
    tell: Tell,
    workload: Workload | None = None,
) -> SiteFacts:
    """Find out everything about the hosts of a site.

    Args:
        results: the results folder.
        interface: network that the tasks' addresses are to be of; None: what a run would use.
        tell: told what is being done, before it is done.
        workload: whose model every host is to build.

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
        checks = _first_facts(site, servers, interface)
        return CheckUp(servers, facts, tell, workload, checks).run()


def _about(site: Site, results: Path, *, mixed_hosts: bool) -> SiteFacts:
    return SiteFacts(
        hosts=tuple(site.hosts),
        ps_hosts=tuple(site.ps_hosts),
        one_machine=site.one_machine,
        shares_files=site.shares_files,
        mixed_hosts=mixed_hosts,
        advice=site.advice,
        results=str(results),
        own_proxies=grpc_proxies(os.environ),
        own_digest=program_digest(),
        own_versions=package_versions(PACKAGES),
    )


def _first_facts(site: Site, servers: HostServers, interface: str | None) -> dict[str, HostCheck]:
    """What every fork server has told of its host when it was ready."""
    return {
        host: HostCheck(
            facts=client.ready.facts,
            address=site.address_of(client, interface),
            import_s=client.ready.import_s,
        )
        for host, client in servers.clients.items()
    }


@dataclass(slots=True)
class CheckUp:
    """The hosts while they are looked at.

    Attributes:
        workload: whose model is built; None if none is asked about.
        checks: what is known of every host so far.
        troubles: why a host could not be looked at further; the first reason.
    """

    servers: HostServers
    facts: SiteFacts
    tell: Tell
    workload: Workload | None
    checks: dict[str, HostCheck]
    troubles: dict[str, str] = field(default_factory=dict)

    def run(self) -> SiteFacts:
        """Look at everything, one thing after the other."""
        steps: dict[str, Callable[[], None]] = {
            "looking at hosts, names and ports": self._look,
            "counting GPUs": self._count_gpus,
            "comparing clocks": self._compare_clocks,
            "sharing files": self._share_files,
            "computing": self._compute,
            "measuring links": self._measure_links,
            "sending to one host": self._send_bursts,
        }
        if self.workload is not None:
            steps[f"building {self.workload.model.name}"] = partial(self._build, self.workload)
        for doing, step in steps.items():
            self.tell(doing)
            step()
        return replace(self.facts, checked=self.checks, troubles=self.troubles)

    def _ask(
        self,
        request_for: Callable[[ForkServerClient], object],
        deadline_s: float,
        until: type[Answer] | None = None,
    ) -> Answers:
        answers = ask_hosts(self.servers, request_for, deadline_s, until)
        self.troubles = answers.troubles | self.troubles
        return answers

    def _look(self) -> None:
        """Have every host look at itself, and call all others."""
        peers = self._listen() if len(self.checks) > 1 else []

        def check(client: ForkServerClient) -> CheckHost:
            others = tuple(peer for peer in peers if peer.host != client.host)
            return CheckHost(peers=others)

        for host, state in self._ask(check, LOOK_S).of(HostState).items():
            self.checks[host] = replace(self.checks[host], state=state)
        for host, client in self.servers.reachable.clients.items():
            with self._noting_trouble(host):
                client.send(EndAll())

    @contextmanager
    def _noting_trouble(self, host: str) -> Iterator[None]:
        try:
            yield
        except LaunchError as error:
            self.troubles.setdefault(host, str(error).splitlines()[0])

    def _listen(self) -> list[Peer]:
        """Have every host answer calls; where each of them does."""

        def answer_calls(client: ForkServerClient) -> AnswerCalls:
            address = self.checks[client.host].address
            return AnswerCalls(address=address, name=client.ready.facts.name)

        answers = self._ask(answer_calls, LISTEN_S, until=Listening).of(Listening)
        return [
            Peer(
                host=host,
                name=self.checks[host].facts.name,
                address=self.checks[host].address,
                port=listening.port,
            )
            for host, listening in answers.items()
        ]

    def _count_gpus(self) -> None:
        """As a worker sees them, whom a run shows those of its host, and as a server does."""
        workers = self._gpus(lambda client: ",".join(g.identity for g in client.ready.facts.gpus))
        for host, of_worker in workers.items():
            self.checks[host] = replace(
                self.checks[host],
                gpus_of_worker=of_worker.count,
                gpu_problem=of_worker.problem,
            )
        for host, of_server in self._gpus(lambda _: "").items():
            self.checks[host] = replace(self.checks[host], gpus_of_server=of_server.count)

    def _gpus(self, visible: Callable[[ForkServerClient], str]) -> dict[str, GpusCounted]:
        answers = self._ask(lambda client: CountGpus(visible=visible(client)), GPUS_S)
        return answers.of(GpusCounted)

    def _compare_clocks(self) -> None:
        if self.facts.one_machine:
            return
        for host, client in self.servers.reachable.clients.items():
            with self._noting_trouble(host):
                self.checks[host] = replace(self.checks[host], clock_offset_s=clock_offset(client))

    def _share_files(self) -> None:
        offsets = {host: check.clock_offset_s or 0.0 for host, check in self.checks.items()}
        results, shared = Path(self.facts.results), self.facts.shares_files
        sharing = try_sharing(self.servers, results, offsets, shared=shared)
        self.facts = replace(self.facts, sharing=sharing)

    def _compute(self) -> None:
        """Hosts that share their cores would only show how they are shared."""
        hosts = list(self.servers.reachable.clients)[: 1 if self.facts.one_machine else None]
        self.facts = replace(self.facts, flops=measure_computing(self.servers.only(hosts)))

    def _measure_links(self) -> None:
        servers, addresses = self.servers.reachable, {h: c.address for h, c in self.checks.items()}
        pairs = [pair for pair in combinations(servers.clients, 2) if self._reach_each_other(*pair)]
        links, trouble = measure_all_links(servers, pairs, addresses.__getitem__, self.tell)
        self.facts = replace(self.facts, links=links, links_trouble=trouble)

    def _send_bursts(self) -> None:
        """To a host that is named for servers, if one is."""
        hosts = list(self.servers.reachable.clients)
        target = next((host for host in [*self.facts.ps_hosts, *hosts] if host in hosts), None)
        if target is None:
            return
        others = [host for host in hosts if host != target]
        senders = [host for host in others if self._reach_each_other(host, target)]
        if senders:
            address = self.checks[target].address
            bursts = try_bursts(self.servers, target, senders, address)
            self.facts = replace(self.facts, bursts=bursts)

    def _build(self, workload: Workload) -> None:
        data_dir = LauncherSettings(results=Path(self.facts.results)).data_dir
        shared = self.facts.shares_files
        built = build_everywhere(self.servers, workload, data_dir, shares_files=shared)
        self.facts = replace(self.facts, building=built)

    def _reach_each_other(self, one: str, other: str) -> bool:
        return self._reaches(one, other) and self._reaches(other, one)

    def _reaches(self, one: str, other: str) -> bool:
        state = self.checks[one].state
        peer = None if state is None else state.peers.get(other)
        return peer is not None and peer.unreached == ""
