"""All fork servers as one: their next message, and listening to them until enough was said.

Decides that a host which does not answer holds up nobody, and that one which has the copies of a
user's own model, whole, is sent none.  What is asked is decided in `asking`.
"""

from __future__ import annotations

import base64
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any

from launchers.fork_servers.client import SILENT_S, ForkServerClient, readable
from ps_allreduce.errors import HostFault, LaunchError
from ps_allreduce.fork_server.messages import (
    AskTime,
    CopiesSeen,
    PutFile,
    Sampled,
    SeekCopies,
    TimeTold,
)
from ps_allreduce.model_files import MANIFEST, names_in, pieces_of
from ps_allreduce.point.models.trained import OwnModel


@dataclass(frozen=True, slots=True)
class HostServers:
    """A fork server on every host of a run.

    Attributes:
        clients: by host name, in the order of the hosts.
        without: what they cannot do without, each with a sentence for its end: lines on which
            nothing ever comes.
    """

    clients: Mapping[str, ForkServerClient]
    without: Mapping[socket.socket, str] = field(default_factory=dict)

    def only(self, hosts: Iterable[str]) -> HostServers:
        """The servers of some of the hosts, in that order."""
        return replace(self, clients={host: self.clients[host] for host in hosts})

    @property
    def reachable(self) -> HostServers:
        """Those whose lines are not cut."""
        return self.only(host for host, client in self.clients.items() if not client.lost)

    def receive(self, timeout_s: float) -> tuple[str, Any] | None:
        """The next message of any server and its host, or None if there is none within the time.

        Raises:
            HostFault: a server is gone, and the next call listens to the others; or what they
                need is gone, and nobody has a message.
        """
        waiting = [host for host, client in self.clients.items() if client.has_message]
        if not waiting:
            listening = list(self.reachable.clients.values())
            lines = [each.fileno() for each in listening] + [each.fileno() for each in self.without]
            told = readable(lines, timeout_s)
            waiting = [client.host for client in listening if client.fileno() in told]
            ended = [reason for line, reason in self.without.items() if line.fileno() in told]
            if ended and not waiting:
                raise HostFault(ended[0])
        for host in waiting:
            message = self.clients[host].receive(0)
            if message is not None:
                return host, _of(host, message)
        return None

    def send_all(self, request: object) -> None:
        """Send one request to every server that can still be reached."""
        for client in self.reachable.clients.values():
            with suppress(LaunchError):  # it is known as lost now, and the others get theirs
                client.send(request)

    def hear(
        self,
        within_s: float,
        waiting: Callable[[], Iterable[str]],
        take: Callable[[str, Any], object],
        lost: Callable[[Sequence[str], LaunchError], object] | None = None,
    ) -> bool:
        """Listen until nothing is waited for any more; False if that takes too long.

        Args:
            waiting: the hosts that something is still expected of; others are not listened to.
            take: told every message and its host.
            lost: told of hosts that nothing more can be heard of; None: it is raised.

        Raises:
            HostFault: a server is gone, or what they cannot do without.
        """
        deadline = time.monotonic() + within_s
        while hosts := list(waiting()):
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            try:
                heard = self.only(hosts).receive(left)
            except LaunchError as error:
                if lost is None:
                    raise
                # Without their network, none of them answers.
                lost([host for host in hosts if self.clients[host].lost] or hosts, error)
            else:
                if heard is not None:
                    take(*heard)
        return True

    def give_up_silent(self, hear: Callable[[object], None]) -> list[str]:
        """Kill servers that do not answer within a few seconds; return their hosts, in order.

        Args:
            hear: is told whatever is said meanwhile.
        """
        waiting = list(self.reachable.clients)

        def take(host: str, message: object) -> None:
            hear(message)
            if isinstance(message, TimeTold):
                waiting.remove(host)

        self.send_all(AskTime())
        self.hear(SILENT_S, lambda: waiting, take)
        for host in waiting:
            self.clients[host].give_up()
        return waiting


def _of(host: str, message: Any) -> Any:
    """The message; a sample under the name that its host has here, as hosts may share a name."""
    if not isinstance(message, Sampled):
        return message
    return replace(message, sample=replace(message.sample, host=host))


def bring_copies(client: ForkServerClient, model: OwnModel, data_dir: Path) -> None:
    """See that a host has the copies of a model.

    Args:
        data_dir: the same folder here, where the copies are, and there.

    Raises:
        LaunchError: the copies here are gone or damaged.
        HostFault: the host refuses them.
    """
    asked = SeekCopies(data_dir=str(data_dir), digest=model.digest)
    if client.answer(asked, CopiesSeen).whole:
        return
    for piece in _pieces(model, data_dir):
        answer = client.answer(piece, CopiesSeen)
        if answer.problem:
            raise HostFault(
                f"the files of {model.name} cannot be written on {client.host}: {answer.problem}."
            )


def _pieces(model: OwnModel, data_dir: Path) -> Iterator[PutFile]:
    """Everything that is to be sent, the list of the files last."""
    folder = model.folder(data_dir)
    try:
        for name in (*names_in(folder), MANIFEST):
            offset = 0
            for content in chain(pieces_of(folder / name), [b""]):  # an empty file is one, too
                yield PutFile(
                    data_dir=str(data_dir),
                    digest=model.digest,
                    path=name,
                    offset=offset,
                    content=base64.b64encode(content).decode(),
                    last=name == MANIFEST and not content,
                )
                offset += len(content)
    except (OSError, ValueError) as error:
        raise LaunchError(
            f"the copies of {model.name} in {folder} are damaged ({error}): the same command makes "
            "them anew."
        ) from error
