"""The place of a worker among all workers, as Horovod's environment variables tell it.

Decides ranks from hosts: workers are ranked by their index, and share a host by its name.  The
variables are those that Horovod's launcher sets (horovod/runner/gloo_run.py, 0.28.1).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

#: Environment variable with the token that ranks say where they meet.
MEETING_TOKEN = "PS_ALLREDUCE_MEETING_TOKEN"


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """The rank of a worker, on its host and among hosts.

    Attributes:
        local_rank, local_size: among the workers of its host.
        cross_rank, cross_size: among the hosts that have a worker of this local rank.
    """

    rank: int
    size: int
    local_rank: int
    local_size: int
    cross_rank: int
    cross_size: int

    @classmethod
    def of(cls, hosts: Sequence[str], rank: int) -> Place:
        """The place of a worker.

        Args:
            hosts: of all workers, in the order of their indices.
        """
        local_rank = list(hosts[:rank]).count(hosts[rank])
        with_that_rank = [host for host in dict.fromkeys(hosts) if hosts.count(host) > local_rank]
        return cls(
            rank=rank,
            size=len(hosts),
            local_rank=local_rank,
            local_size=hosts.count(hosts[rank]),
            cross_rank=with_that_rank.index(hosts[rank]),
            cross_size=len(with_that_rank),
        )

    def environment(self) -> dict[str, str]:
        """As environment variables."""
        return {
            "HOROVOD_RANK": str(self.rank),
            "HOROVOD_SIZE": str(self.size),
            "HOROVOD_LOCAL_RANK": str(self.local_rank),
            "HOROVOD_LOCAL_SIZE": str(self.local_size),
            "HOROVOD_CROSS_RANK": str(self.cross_rank),
            "HOROVOD_CROSS_SIZE": str(self.cross_size),
        }
