"""Everything that the checks are told about a site.  Decides nothing about what is good or bad."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ps_allreduce.inspection.questions import HostState
from ps_allreduce.record.hosts import HostFacts
from ps_allreduce.record.records import LinkRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class HostCheck:
    """One host whose fork server answers.

    Attributes:
        facts: what its fork server saw when it started.
        address: that its tasks would be reached by.
        import_s: time in which TensorFlow was imported.
        state: what it found; None if it could not look.
        clock_offset_s: of its clock against the launcher's; None if it was not asked.
        gpus_of_worker: how many CUDA shows a worker; None if it was not asked.
        gpus_of_server: how many it shows a parameter server.
        gpu_problem: what CUDA complains about.
    """

    facts: HostFacts
    address: str
    import_s: float
    state: HostState | None = None
    clock_offset_s: float | None = None
    gpus_of_worker: int | None = None
    gpus_of_server: int | None = None
    gpu_problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sharing:
    """What became of files that hosts wrote into the results folder.

    Attributes:
        refused: why the launcher itself cannot write there; empty if it can.
        unwritable: why a host cannot.
        delays_s: seconds until a reader (outer key) saw what a writer (inner key) had written; no
            entry: it never did.
        unseen_here: hosts whose file the launcher does not see.
    """

    refused: str = ""
    unwritable: Mapping[str, str] = field(default_factory=dict)
    delays_s: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    unseen_here: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteFacts:
    """What was found out about a site.

    Attributes:
        hosts: all that were asked for, in their order.
        one_machine: they share the cores, the clock and the memory of this machine.
        shares_files: all of them should see the same files.
        mixed_hosts: hosts of different kinds are welcome.
        ask_for_alike: how to get hosts of one kind.
        results: the results folder.
        own_proxies: that gRPC would take from this process's environment.
        own_digest: of the program in this checkout.
        own_versions: of Python and the packages in this process.
        not_started: why the fork servers did not come up; empty if they did.
        start_s: time until all of them were ready.
        checked: the hosts whose fork servers answer.
        troubles: why a host could not be looked at further.
        sharing: None if it was not tried.
        flops: 32-bit floating-point operations per second of every host, all busy at once.
        links: what was measured between hosts.
        links_trouble: why that came to an end; empty if it did not.
    """

    hosts: tuple[str, ...]
    one_machine: bool
    shares_files: bool
    mixed_hosts: bool = False
    ask_for_alike: str
    results: str
    own_proxies: Mapping[str, str] = field(default_factory=dict)
    own_digest: str
    own_versions: Mapping[str, str]
    not_started: str = ""
    start_s: float = 0.0
    checked: Mapping[str, HostCheck] = field(default_factory=dict)
    troubles: Mapping[str, str] = field(default_factory=dict)
    sharing: Sharing | None = None
    flops: Mapping[str, float] = field(default_factory=dict)
    links: tuple[LinkRecord, ...] = ()
    links_trouble: str = ""

    @property
    def states(self) -> dict[str, HostState]:
        """Of the hosts that could look."""
        return {host: one.state for host, one in self.checked.items() if one.state is not None}
