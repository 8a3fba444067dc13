"""What a worker computes on."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from ps_allreduce.errors import at_least, at_most

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
class Resources:
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
        return {
            "device": self.device.value,
            "devices_per_worker": 1,
            "cores_per_worker": self.cores_per_worker,
            "threads_per_worker": self.threads_per_worker,
        }
