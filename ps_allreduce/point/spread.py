"""How the tasks of an experiment are spread over hosts, as numbers and kinds.

Decides which ways there are.  Which host a task really runs on is worked out by `layout`, from
these and from the hosts that were granted.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from ps_allreduce.errors import at_least


class LayoutKind(StrEnum):
    """How servers and workers share hosts.

    Servers that are `dedicated` have hosts of their own among all hosts; with `ps_hosts` they have
    those that the user names for them, which may be of another kind.
    """

    COLOCATED = "colocated"
    DEDICATED = "dedicated"
    PS_HOSTS = "ps_hosts"

    @property
    def is_apart(self) -> bool:
        """Servers share no host with workers."""
        return self is not LayoutKind.COLOCATED


class Coordinator(StrEnum):
    """The host of the chief, which hands out work where there are parameter servers."""

    FIRST_WORKER = "first_worker"
    FIRST_SERVER = "first_server"
    OWN_HOST = "own_host"


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """Tasks per host; an experiment without a spread has all its tasks on one host.

    Attributes:
        workers_per_host: hosts are filled one after the other.
        ps_per_host: at most so many servers on a host.  Dedicated hosts are filled one after the
            other, with one server each if nothing is said; colocated servers are dealt to the
            workers' hosts in turn, as many as there are.
        coordinator: where the chief is.
    """

    workers_per_host: int = 1
    ps_per_host: int | None = None
    coordinator: Coordinator = Coordinator.FIRST_WORKER

    def __post_init__(self) -> None:
        at_least(1, workers_per_host=self.workers_per_host)
        if self.ps_per_host is not None:
            at_least(1, ps_per_host=self.ps_per_host)


def workers_together(num_workers: int, spread: Spread | None) -> int:
    """Workers on a host that has as many as there may be."""
    return num_workers if spread is None else min(num_workers, spread.workers_per_host)
