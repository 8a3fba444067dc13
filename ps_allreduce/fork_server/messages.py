"""What launcher and fork server say to each other: one JSON object per line over a socket.

Version 8.  The launcher sends requests, the fork server reports; `type` names the kind of message.
Every host has a fork server of its own.  It serves requests about files without a process: what a
run left is read, and the copies of a user's own model are written where a host has none.  Standard
library and core only, so that launchers can import it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ps_allreduce.errors import LaunchError, UserError
from ps_allreduce.inspection.questions import MESSAGES, Answer, Message
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.placement import VariableSpec
from ps_allreduce.point.strategies.base import Servers
from ps_allreduce.point.workload import Workload
from ps_allreduce.record.hosts import HostFacts
from ps_allreduce.record.records import Sample
from ps_allreduce.record.variables import RowsAsked
from ps_allreduce.serialization import from_json, parse_json, to_json

VERSION = 8

#: Environment variable with the token of a fork server that calls its launcher.
TOKEN = "PS_ALLREDUCE_TOKEN"


@dataclass(frozen=True, slots=True, kw_only=True)
class StartTask(Message):
    """Fork one task of a run.

    Attributes:
        host: name of the host that the task belongs on; it refuses to run elsewhere.
        tf_config: text for TF_CONFIG, empty for a single worker without a cluster.
        cores: processors that the task is pinned to.
        threads: TensorFlow's intra-operation threads.
        log: file that takes the task's output.
        result: the driving task writes `<result>.json` and `<result>.npz`.
        weights: file for the weights, None if nobody asked for them.
    """

    task: str
    host: str
    tf_config: str
    experiment: Experiment
    cores: tuple[int, ...]
    threads: int
    environment: Mapping[str, str]
    data_dir: str
    log: str
    result: str
    weights: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskPlaced(Answer):
    """What a task was really given.

    Attributes:
        settings: variables that change computation, and Keras's data layout.
    """

    cores: tuple[int, ...] = ()
    gpus: str = ""
    settings: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeNeeded(Answer):
    """How long a task needs from now on at least."""

    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeModel(Message):
    """Fork a process that builds a model and reports its variables in creation order."""

    workload: Workload
    data_dir: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelDescribed(Answer):
    """A model that was built.

    Attributes:
        variables: in creation order.
        build_ns: how long it took to build.
        kept_values: how many numbers a step keeps of an example, at least.
        memory_bytes: of the host.
    """

    variables: tuple[VariableSpec, ...]
    build_ns: int
    kept_values: int
    memory_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CountRows(Message):
    """Fork a process that looks up what a worker looks up in its first batches.

    Attributes:
        ways: to place rows of the model's tables.
    """

    workload: Workload
    data_dir: str
    ways: tuple[Servers, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RowsCounted(Answer):
    """What was asked of servers, with each way to place rows."""

    asked: tuple[RowsAsked, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PrepareInput(Message):
    """Fork a process that makes the digits if they are the input, and checks the input's files."""

    workload: Workload
    data_dir: str


@dataclass(frozen=True, slots=True, kw_only=True)
class InputPrepared(Answer):
    """The files are there and can be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PrepareRun(Message):
    """Make a folder on this host, and hold free ports until the run is over.

    Attributes:
        fork_servers: of all hosts on this machine, on the one of these whose samples tell what
            other processes use; empty on the others.
    """

    num_ports: int
    fork_servers: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPrepared(Message):
    """Ports that nobody else can take, and an empty folder on the host's own disk.

    Attributes:
        problem: why there are none; empty if there are.
    """

    ports: tuple[int, ...] = ()
    folder: str = ""
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishRun(Message):
    """Remove the run's folder and let go of its ports."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AskTime(Message):
    """Ask for the wall clock of the host."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeTold(Message):
    """The wall clock of the host; seconds since the epoch."""

    time: float


@dataclass(frozen=True, slots=True, kw_only=True)
class EndAll(Message):
    """Kill every process that was forked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hello(Message):
    """The first word of a fork server that calls its launcher, before it imports anything.

    Attributes:
        token: proves that this is the server that was asked to call.
    """

    token: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaving(Message):
    """The fork server ends, through no fault of a run; no full stop in the reason."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready(Message):
    """TensorFlow is imported; requests can be served.

    Attributes:
        program: digest of the measured program's source, as it is on this host.
        scratch: a folder of this server's own, on the host's own disk.
    """

    version: int
    program: str
    import_s: float
    pid: int
    scratch: str
    facts: HostFacts


@dataclass(frozen=True, slots=True, kw_only=True)
class Started(Message):
    """A process was forked; `name` is the task or the kind of request."""

    name: str
    pid: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Event(Message):
    """A task has got somewhere.

    Attributes:
        event: `connected`, `built`, `phase:<name>`, `done`, `failed`, `stopped` or `continued`.
        time: seconds since the epoch.
        text: a reason, for `failed`.
        user_error: the failure is the user's mistake.
        host_fault: the failure is a fault of the host.
    """

    name: str
    event: str
    time: float
    text: str = ""
    user_error: bool = False
    host_fault: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Exited(Message):
    """A forked process has ended; a negative status is a signal."""

    name: str
    pid: int
    status: int
    cpu_s: float
    peak_memory_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampled(Message):
    """A look at all forked processes and the network."""

    sample: Sample


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadFile(Message):
    """Read a piece of a file that a run left."""

    path: str
    offset: int
    length: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FileRead(Message):
    """The piece, in Base64; `size` is that of the whole file, None if there is no such file."""

    content: str = ""
    size: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SeekCopies(Message):
    """Ask whether this host has the copies of a user's own model below a data folder."""

    data_dir: str
    digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PutFile(Message):
    """Write a piece of one of these copies.

    Attributes:
        path: of the file, below the folder of the copies.
        offset: bytes of the file that were sent before.
        content: in Base64.
        last: nothing else follows, so the folder may appear under its name, the digest.
    """

    data_dir: str
    digest: str
    path: str
    offset: int
    content: str
    last: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class CopiesSeen(Message):
    """The answer to both.

    Attributes:
        whole: the folder is there, and its digest is right.
        problem: why a piece could not be written; empty if it could.
    """

    whole: bool = False
    problem: str = ""


def encode(message: object) -> bytes:
    """One line."""
    body = {"type": type(message).__name__, **to_json(message)}
    return json.dumps(body, separators=(",", ":")).encode() + b"\n"


def decode(line: bytes) -> Any:
    """The message in a line.

    Raises:
        LaunchError: the line is no message of this version.
    """
    try:
        body = parse_json(line)
        return from_json(MESSAGES[body.pop("type")], body)
    except (ValueError, KeyError, AttributeError, TypeError, RecursionError, UserError) as error:
        raise LaunchError(
            f"not a message of version {VERSION} ({error!r}): {line[:200]!r}"
        ) from None
