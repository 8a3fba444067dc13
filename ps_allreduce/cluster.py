"""Tasks, cluster specifications and TF_CONFIG, with exactly TensorFlow's meaning.

Decides how tasks are named and how TF_CONFIG is spelled.  It does not decide where tasks run
(`point.layout` does) and imports no TensorFlow.

It also decides the ranks of Horovod: workers are ranked by their index, and share a host by its
name.  The variables are those that Horovod's launcher sets (horovod/runner/gloo_run.py, 0.28.1).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum

from ps_allreduce.errors import UserError


class TaskType(StrEnum):
    """Task types, spelled as TF_CONFIG spells them.

    An evaluator is left out on purpose: a coordinator waits for it forever
    (tensorflow/tensorflow#46169).
    """

    CHIEF = "chief"
    WORKER = "worker"
    PS = "ps"


@dataclass(frozen=True, slots=True)
class TaskId:
    """One TensorFlow process: its type, and its index among the tasks of that type."""

    type: TaskType
    index: int

    def __post_init__(self) -> None:
        if self.index < 0:
            raise ValueError(f"a task index is 0 or more, got {self.index}")

    def __str__(self) -> str:
        return f"{self.type}:{self.index}"

    @classmethod
    def parse(cls, text: str) -> TaskId:
        """Read `worker:3`.

        Raises:
            UserError: the text names no task.
        """
        kind, _, index = text.partition(":")
        if kind not in set(TaskType) or not index.isdecimal():
            raise UserError(
                f"{text!r} is not a task; a task is one of {', '.join(TaskType)}, "
                "a colon and an index, for instance worker:0."
            )
        return cls(TaskType(kind), int(index))


@dataclass(frozen=True, slots=True)
class ClusterSpec:
    """Addresses (`host:port`) of all tasks by type, as `tf.train.ClusterSpec.as_dict` gives
    them.
    """

    addresses: Mapping[TaskType, tuple[str, ...]]

    def __post_init__(self) -> None:
        everyone = [address for group in self.addresses.values() for address in group]
        for address in everyone:
            host, _, port = address.rpartition(":")
            if not host or not port.isdecimal() or not 0 < int(port) < 65536:
                raise UserError(f"task address {address!r} is not of the form host:port.")
        if len(set(everyone)) != len(everyone):
            raise UserError(f"two tasks share one address: {', '.join(everyone)}.")

    def tasks(self) -> Iterator[TaskId]:
        """All tasks, in the order of the specification."""
        for kind, group in self.addresses.items():
            yield from (TaskId(kind, index) for index in range(len(group)))

    def address(self, task: TaskId) -> str:
        """The `host:port` of a task; a `KeyError` or `IndexError` if it is not in the cluster."""
        return self.addresses[task.type][task.index]

    def as_dict(self) -> dict[str, list[str]]:
        """The plain mapping that `tf.train.ClusterSpec` takes."""
        return {str(kind): list(group) for kind, group in self.addresses.items() if group}


@dataclass(frozen=True, slots=True)
class TfConfig:
    """The environment variable TF_CONFIG of one task."""

    cluster: ClusterSpec
    task: TaskId

    def render(self) -> str:
        """The JSON text that TensorFlow's `TFConfigClusterResolver` reads."""
        task = {"type": str(self.task.type), "index": self.task.index}
        return json.dumps({"cluster": self.cluster.as_dict(), "task": task})

    @classmethod
    def parse(cls, text: str) -> TfConfig:
        """Read a TF_CONFIG that this suite wrote.

        Raises:
            UserError: the text is no TF_CONFIG, or its task is not in its cluster.
        """
        try:
            content = json.loads(text)
            groups = content["cluster"].items()
            cluster = ClusterSpec({TaskType(kind): tuple(group) for kind, group in groups})
            task = TaskId(TaskType(content["task"]["type"]), int(content["task"]["index"]))
            cluster.address(task)
        except (ValueError, LookupError, OverflowError, TypeError, AttributeError) as error:
            raise UserError(f"TF_CONFIG cannot be read ({error!r}): {text[:200]}") from error
        return cls(cluster, task)


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
        return {f"HOROVOD_{name.upper()}": str(number) for name, number in asdict(self).items()}
