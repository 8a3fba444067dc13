"""What a launcher and the holder of a network say to each other: one JSON line each.

Standard library and core only: the launcher needs no netlink.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TypeVar

from ps_allreduce.network import EmulatedNetwork
from ps_allreduce.serialization import from_json, to_json

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class HoldNetwork:
    """The launcher asks for a network; its hosts have these names."""

    network: EmulatedNetwork
    names: tuple[str, ...]


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
        error: one sentence, if there is no network.
        user_error: whether the request is to blame, or what this machine allows.
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
