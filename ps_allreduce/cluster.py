"""Tasks, cluster specifications and TF_CONFIG, with exactly TensorFlow's meaning.

Decides how tasks are named and how TF_CONFIG is spelled.  It does not decide where tasks run
(`point.layout` does) and imports no TensorFlow.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
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
