"""The launcher's end of an emulated network: start the process that keeps one, and end it.

Decides how hosts may be named, what both say to each other (one JSON line each), which words make
and enter namespaces, and what to do where these are refused.  It needs no netlink: how a network is
built is not known here.
"""

from __future__ import annotations

import errno
import json
import os
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, ClassVar, TypeVar

from launchers.processes import ChildProcess, fork_server_environment, start_with_socket
from ps_allreduce.errors import HostFault, UserError
from ps_allreduce.point.network import EmulatedNetwork
from ps_allreduce.scratch import scratch_parent
from ps_allreduce.serialization import from_json, to_json

T = TypeVar("T")

NETWORK_PROCESS = (sys.executable, "-m", "launchers.sites.emulated.network_process")

#: How long building a network may take, and counting what it lost.
DEADLINE_S, COUNT_DEADLINE_S = 60.0, 10.0

CAP_NET_ADMIN = 12

CAP_SYS_ADMIN = 21

#: Settings of the kernel that forbid ordinary users their namespaces: the value that does, and
#: the one that root may set instead.
FORBIDDING = {
    "kernel.unprivileged_userns_clone": ("0", "1"),
    "kernel.apparmor_restrict_unprivileged_userns": ("1", "0"),
    "user.max_user_namespaces": ("0", "10000"),
    "user.max_net_namespaces": ("0", "10000"),
    "user.max_uts_namespaces": ("0", "10000"),
}

GONE = "the emulated network's process has ended."

SILENT = "the emulated network's process does not answer."

HOST_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,62}[A-Za-z0-9])?")


@dataclass(frozen=True, slots=True, kw_only=True)
class HoldNetwork:
    """The launcher asks for a network, or for other rates and delays of the one that it has.

    Attributes:
        names: of its hosts.
        with_user: its process has a user namespace of its own, to which the hosts belong.
    """

    kind: ClassVar[str] = "hold"
    network: EmulatedNetwork
    names: tuple[str, ...]
    with_user: bool

    def __post_init__(self) -> None:
        if len(self.names) != self.network.num_hosts or len(set(self.names)) != len(self.names):
            raise UserError(
                f"{self.network.num_hosts} emulated hosts need as many different names, "
                f"got {', '.join(self.names) or 'none'}."
            )
        for name in self.names:
            if not HOST_NAME.fullmatch(name):
                raise UserError(
                    f"{name!r} is no name for a host: up to 64 letters, digits, hyphens and dots."
                )


@dataclass(frozen=True, slots=True, kw_only=True)
class CountDropped:
    """The launcher asks how many packets the ports have lost."""

    kind: ClassVar[str] = "count-dropped"


@dataclass(frozen=True, slots=True, kw_only=True)
class EmulatedHost:
    """A host of an emulated network.

    Attributes:
        name: as `hostname` tells on it.
        interface: its link to the switch; there is no other besides `lo`.
        enter: the words to put before a command that runs on this host.
    """

    name: str
    address: str
    interface: str
    enter: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldNetwork:
    """The answer: an emulated network that exists, or why there is none.

    Attributes:
        dropped: packets that the port towards each host lost since its link was last changed, if
            they were asked for.
        error: one sentence, if there is no network.
        user_error: the request asks for what this machine cannot do, or does not allow.
    """

    hosts: tuple[EmulatedHost, ...] = ()
    dropped: tuple[int, ...] = ()
    error: str = ""
    user_error: bool = False


@dataclass(frozen=True, slots=True)
class Holder:
    """A network that exists, and the process without which it would not."""

    hosts: tuple[EmulatedHost, ...]
    program: ChildProcess

    @property
    def is_gone(self) -> bool:
        """The process has ended, and with it the links."""
        return self.program.status() is not None

    def change_links(self, network: EmulatedNetwork) -> None:
        """Give the links the rates and delays of another network with as many hosts and racks.

        Raises:
            UserError: the kernel cannot do it.
            HostFault: the process is gone, or it fails.
        """
        names = tuple(host.name for host in self.hosts)
        self._ask(HoldNetwork(network=network, names=names, with_user=False))

    def dropped(self) -> Sequence[int]:
        """Packets that the port towards each host lost since its link was last changed.

        Raises:
            HostFault: the process is gone, or it fails.
        """
        return self._ask(CountDropped()).dropped

    def _ask(self, request: HoldNetwork | CountDropped) -> HeldNetwork:
        answer = _ask(self.program, request) or HeldNetwork(error=GONE)
        _raise_if_refused(answer)
        return answer


def encode(message: object) -> bytes:
    """One line."""
    return json.dumps(to_json(message)).encode() + b"\n"


def decode(kind: type[T], line: bytes) -> T:
    """Read a line that `encode` made of such a message."""
    return from_json(kind, json.loads(line))


def decode_request(line: bytes) -> HoldNetwork | CountDropped:
    """Read a line that `encode` made of a request."""
    request: Any = HoldNetwork | CountDropped
    return decode(request, line)  # type: ignore[no-any-return]


@contextmanager
def hold_network(network: EmulatedNetwork, names: Sequence[str]) -> Iterator[Holder]:
    """A network for as long as the context lasts; end what runs on its hosts before that.

    It also ends when the thread that asked for it does.

    Args:
        names: of the hosts, as `hostname` tells on them.

    Raises:
        UserError: the names are wrong, or this machine cannot or does not allow it.
        HostFault: the network could not be built.
    """
    with_user = needs_user_namespace()
    request = HoldNetwork(network=network, names=tuple(names), with_user=with_user)
    with tempfile.TemporaryFile(dir=scratch_parent()) as log:
        program = start_with_socket(
            (*unshare_words(with_user), *NETWORK_PROCESS),
            # The file has no name that could stay behind.
            Path(f"/proc/self/fd/{log.fileno()}"),
            # Without LC_ALL, `unshare` would complain in the user's language.
            fork_server_environment(os.environ) | {"LC_ALL": "C"},
        )
        try:
            held = _ask(program, request)
            if held is None:
                raise _reason(log)
            _raise_if_refused(held)
            yield Holder(held.hosts, program)
        finally:
            program.end()


def _ask(program: ChildProcess, request: HoldNetwork | CountDropped) -> HeldNetwork | None:
    """The answer of the process; None if it ended without one.

    Raises:
        HostFault: it does not answer, and was killed.
    """
    counts = isinstance(request, CountDropped)
    program.connection.settimeout(COUNT_DEADLINE_S if counts else DEADLINE_S)
    try:
        program.connection.sendall(encode(request))
        with program.connection.makefile("rb") as lines:
            line = lines.readline()
    except TimeoutError as error:
        program.kill()  # so that the next network is another one
        raise HostFault(SILENT) from error
    except OSError:
        return None
    return decode(HeldNetwork, line) if line else None


def _raise_if_refused(held: HeldNetwork) -> None:
    if held.error:
        raise (UserError if held.user_error else HostFault)(held.error)


def _reason(log: BinaryIO) -> UserError | HostFault:
    """Why there was no answer, by what the process, or `unshare` before it, printed."""
    log.seek(0)
    text = log.read().decode(errors="replace").strip()
    program, _, complaint = text.partition(": ")
    if program == "unshare" and not complaint.startswith("failed to execute"):
        return UserError(explain_refusal(complaint, read_settings()))
    return HostFault(f"the emulated network could not be built:\n{text or '(no output)'}")


def has_capabilities(status: str) -> bool:
    """Whether a process may make namespaces as it is, by its /proc/PID/status."""
    (effective,) = [line for line in status.splitlines() if line.startswith("CapEff:")]
    held = int(effective.split()[1], 16)
    return all(held >> capability & 1 for capability in (CAP_NET_ADMIN, CAP_SYS_ADMIN))


def needs_user_namespace() -> bool:
    """Whether this process needs a user namespace in order to make others."""
    return not has_capabilities(Path("/proc/self/status").read_text(encoding="utf-8"))


def unshare_words(with_user: bool) -> tuple[str, ...]:
    """What to put before a command that gets a network of its own."""
    user = ("--user", "--map-root-user") if with_user else ()
    return ("unshare", *user, "--net", "--")


def enter_words(pid: int, net: str, uts: str, with_user: bool) -> tuple[str, ...]:
    """What to put before a command that runs in namespaces that a process holds."""
    user = (f"--user=/proc/{pid}/ns/user", "--preserve-credentials") if with_user else ()
    return ("nsenter", *user, f"--net={net}", f"--uts={uts}", "--")


def read_settings(root: Path = Path("/proc/sys")) -> dict[str, str]:
    """Those of the settings that forbid which this kernel has."""
    settings = {}
    for name in FORBIDDING:
        with suppress(OSError):
            settings[name] = (root / name.replace(".", "/")).read_text(encoding="ascii").strip()
    return settings


def explain_refusal(refusal: str, settings: Mapping[str, str]) -> str:
    """What to do about a namespace that was refused.

    Args:
        refusal: the error as the system words it.
        settings: as `read_settings` found them.
    """
    remedies = [
        f"{name}={allowing}"
        for name, (forbidding, allowing) in FORBIDDING.items()
        if settings.get(name) == forbidding
    ]
    if remedies:
        advice = f"have root set 'sysctl -w {' '.join(remedies)}', or run this as root"
    elif os.strerror(errno.ENOSPC) in refusal:
        advice = "have root raise the limits of 'sysctl user', or end other programs that hold some"
    else:
        advice = (
            "run this as root; inside a container, give it the capabilities SYS_ADMIN and "
            "NET_ADMIN, or a security profile that lets it call unshare"
        )
    return f"emulated hosts need namespaces, which this machine refuses ({refusal}): {advice}."
