"""The place of a worker among all workers, as Horovod's environment variables tell it.

Decides ranks from TF_CONFIG: workers are ranked by their index, and those with one host name share
a host.  The variables are those that Horovod's launcher sets (horovod/runner/gloo_run.py, 0.28.1).
"""

from __future__ import annotations

from dataclasses import dataclass

from ps_allreduce.cluster import TaskType, TfConfig


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
    def of(cls, config: TfConfig) -> Place:
        """The place of the worker whose TF_CONFIG this is."""
        hosts = [
            address.rpartition(":")[0] for address in config.cluster.addresses[TaskType.WORKER]
        ]
        rank = config.task.index
        local_rank = hosts[:rank].count(hosts[rank])
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
