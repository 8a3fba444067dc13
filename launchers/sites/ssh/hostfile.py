"""The list of hosts for `ssh`: from text to values.  Pure.

Decides how a host is written, `[user@]name[:port] [private-address] [ps]`, and which lines are
refused.  Hosts marked `ps` are named for servers; they may be of another kind than the others.
The order of the file is the order in which hosts are used.  Hosts that answered are compared with
what the file says of them.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from launchers.site import LOOPBACK
from ps_allreduce.errors import UserError
from ps_allreduce.record.hosts import HostFacts

EXAMPLE = "'ubuntu@203.0.113.7 10.0.0.7', or just 'node7'"

#: The last word of a host's line.
FOR_SERVERS = "ps"

#: As DNS, /etc/hosts and ~/.ssh/config name hosts; never an option of ssh.
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,252}")

#: Users of a directory service have an "@" in their name; ssh cuts at the last one, too.
_USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._@+-]{0,252}")

_PORT = re.compile(r"[0-9]{1,5}")

_DESTINATION = re.compile(r"(?:(?P<user>.*)@)?(?P<name>[^@]*?)(?::(?P<port>[^:@]*))?")


@dataclass(frozen=True, slots=True, kw_only=True)
class SshHost:
    """A host, and how ssh gets there.

    Attributes:
        name: a DNS name, an IPv4 address, or a `Host` of the user's ~/.ssh/config.
        user, port: None for what ssh's own configuration says.
        address: IPv4, of its tasks, in the network that the hosts share; None: its interfaces tell.
        for_servers: it is named for servers.
    """

    name: str
    user: str | None = None
    port: int | None = None
    address: str | None = None
    for_servers: bool = False

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise UserError(
                f"{self.name!r} is no host name, which has letters, digits, '.', '-' and '_'; give "
                "an IPv6 address a name in ~/.ssh/config."
            )
        if self.user is not None and not _USER.fullmatch(self.user):
            raise UserError(f"{self.user!r} is no name of a user.")
        if self.port is not None and not 1 <= self.port <= 65535:
            raise UserError(f"a port is a number from 1 to 65535, got {self.port}.")
        if self.address is not None:
            _check_address(self.address)

    @property
    def destination(self) -> str:
        """As one types it behind `ssh`."""
        port = "" if self.port is None else f"-p {self.port} "
        user = "" if self.user is None else f"{self.user}@"
        return f"{port}{user}{self.name}"


def _check_address(address: str) -> None:
    try:
        parsed = ipaddress.IPv4Address(address)
    except ValueError:
        raise UserError(
            f"expected the host's IPv4 address in the network of the hosts, found {address!r}."
        ) from None
    if parsed.is_loopback or parsed.is_multicast or parsed.is_unspecified:
        raise UserError(f"no other host can reach {address}.")


def parse_host_file(text: str, source: str) -> tuple[SshHost, ...]:
    """The hosts in their order; comments begin with #.

    Args:
        source: what the text is called, for messages.

    Raises:
        UserError: a line cannot be read or repeats another, or there is no host.
    """
    hosts: dict[int, SshHost] = {}
    for number, line in enumerate(text.split("\n"), start=1):
        words = line.partition("#")[0].split()
        if words:
            try:
                host = _parse_host(words)
                _refuse_repeat(host, hosts)
            except UserError as error:
                raise UserError(f"{source}, line {number}: {error}") from None
            hosts[number] = host
    if not hosts:
        raise UserError(f"{source} names no host; write one per line, as {EXAMPLE}.")
    if all(host.for_servers for host in hosts.values()):
        raise UserError(f"{source} marks all hosts '{FOR_SERVERS}', so none is left for workers.")
    return tuple(hosts.values())


def _parse_host(words: Sequence[str]) -> SshHost:
    for_servers = len(words) > 1 and words[-1] == FOR_SERVERS
    words = words[: len(words) - for_servers]
    if len(words) > 2:
        raise UserError(
            f"expected a host, at most one address, and '{FOR_SERVERS}' if it is for servers, as "
            f"{EXAMPLE}."
        )
    parts = _DESTINATION.fullmatch(words[0])
    if parts is None or (parts["port"] is not None and not _PORT.fullmatch(parts["port"])):
        raise UserError(f"{words[0]!r} is not [user@]name[:port], as {EXAMPLE}.")
    return SshHost(
        name=parts["name"],
        user=parts["user"],
        port=None if parts["port"] is None else int(parts["port"]),
        address=words[1] if len(words) == 2 else None,
        for_servers=for_servers,
    )


def _refuse_repeat(host: SshHost, others: dict[int, SshHost]) -> None:
    for number, other in others.items():
        if host.name.lower() == other.name.lower():
            raise UserError(f"{host.name} stands in line {number} already.")
        if host.address is not None and host.address == other.address:
            raise UserError(f"{host.address} is the address of {other.name} in line {number}.")


def refuse_misfits(hosts: Sequence[SshHost], facts: Mapping[str, HostFacts], source: str) -> None:
    """See that the private addresses are the hosts' own, and that no machine stands there twice.

    Args:
        facts: by the names of the hosts in the file.
        source: the host file, for messages.

    Raises:
        UserError: it is not so.
    """
    seen: dict[object, str] = {}
    for host in hosts:
        interfaces = [each for each in facts[host.name].interfaces if each.name != LOOPBACK]
        addresses = [each.address for each in interfaces]
        if host.address is not None and host.address not in addresses:
            raise UserError(
                f"{source} gives {host.name} the private address {host.address}, but "
                f"that host has {', '.join(addresses) or 'none'}."
            )
        twin = seen.setdefault((facts[host.name].name, tuple(interfaces)), host.name)
        if interfaces and twin != host.name:
            raise UserError(f"{source}: {twin} and {host.name} are the same machine.")
