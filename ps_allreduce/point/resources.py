"""What a worker computes on, and how the tasks of an experiment are spread over hosts.

Decides which ways there are, as numbers and kinds.  Which host a task really runs on is worked out
by `layout`, from these and from the hosts that were granted.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from ps_allreduce.errors import at_least, at_most
from ps_allreduce.serialization import Columns

#: The largest machines have fewer, and TensorFlow makes as many threads as it is told to.
MOST_CORES = 4096


def default_threads(cores: int) -> int:
    """Threads of a worker where nothing is said: one core is left to servers and transport."""
    return max(1, cores - 1)


class Device(StrEnum):
    """Where workers compute."""

    CPU = "cpu"
    GPU = "gpu"


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources(Columns):
    """What a worker computes on.

    Attributes:
        cores_per_worker: cores that a worker is pinned to; servers share them if colocated.
        threads_per_worker: TensorFlow's intra-operation threads.
    """

    device: Device = Device.CPU
    cores_per_worker: int = 1
    threads_per_worker: int = 1

    def __post_init__(self) -> None:
        cores, threads = self.cores_per_worker, self.threads_per_worker
        at_least(1, cores_per_worker=cores, threads_per_worker=threads)
        at_most(MOST_CORES, cores_per_worker=cores, threads_per_worker=threads)

    def title_parts(self) -> list[str]:
        """What a short line says: threads that are not at their default."""
        count = self.threads_per_worker
        is_default = count == default_threads(self.cores_per_worker)
        return [] if is_default else [f"{count} thread{'s' * (count > 1)}"]

    def columns(self) -> dict[str, object]:
        """As columns of a table.  A worker has one device."""
        return {**Columns.columns(self), "devices_per_worker": 1}


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
