"""What a launcher and the holder of a network say to each other: one JSON line each.

Decides how hosts may be named.  Standard library and core only: the launcher needs no netlink.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TypeVar

from ps_allreduce.errors import UserError
from ps_allreduce.point.network import EmulatedNetwork
from ps_allreduce.serialization import from_json, to_json

T = TypeVar("T")

HOST_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,62}[A-Za-z0-9])?")


@dataclass(frozen=True, slots=True, kw_only=True)
class HoldNetwork:
    """The launcher asks for a network; its hosts have these names."""

    network: EmulatedNetwork
    names: tuple[str, ...]

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
class HeldHost:
    """A host that exists.

    Attributes:
        net, uts: paths by which a process enters its namespaces.
    """

    name: str
    address: str
    interface: str
    net: str
    uts: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """The holder's answer.

    Attributes:
        pid: of the holder, whose user namespace the hosts belong to.
        error: one sentence, if there is no network.
        user_error: the request asks for what this machine cannot do, or does not allow.
    """

    pid: int
    hosts: tuple[HeldHost, ...] = ()
    error: str = ""
    user_error: bool = False


def encode(message: object) -> bytes:
    """One line."""
    return json.dumps(to_json(message)).encode() + b"\n"


def decode(kind: type[T], line: bytes) -> T:
    """Read a line that `encode` made of such a message."""
    return from_json(kind, json.loads(line))
