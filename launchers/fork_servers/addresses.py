"""Which of a host's networks a run uses.  Pure.

Decides the address of every host in the cluster specification from its interfaces and from what the
user asked for.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence

from ps_allreduce.errors import UserError
from ps_allreduce.record.hosts import Interface

LOOPBACK = "lo"


def task_address(
    host: str, interfaces: Sequence[Interface], wanted: str | None, preset: str | None = None
) -> str:
    """The address that a host's tasks are reached by.

    Args:
        wanted: the name of an interface, a subnet (`10.1.0.0/16`) or an address; None takes the
            preset, or the first interface that is not the loopback.
        preset: what the site says about it; None if it leaves it to the interfaces.

    Raises:
        UserError: the host has no such interface.
    """
    if wanted is not None:
        candidates = [each for each in interfaces if _is_wanted(each, wanted)]
    elif preset is not None:
        return preset
    else:
        outside = [each for each in interfaces if each.name != LOOPBACK]
        candidates = outside or list(interfaces)
    if not candidates:
        listed = ", ".join(f"{i.name} ({i.address}/{i.prefix_length})" for i in interfaces)
        raise UserError(
            f"host {host} has no interface {wanted or 'with an address'}; it has: "
            f"{listed or 'none'}. Choose one with --interface, by name or by subnet."
        )
    return candidates[0].address


def _is_wanted(interface: Interface, wanted: str) -> bool:
    if interface.name == wanted:
        return True
    try:
        return ipaddress.ip_address(interface.address) in ipaddress.ip_network(wanted, strict=False)
    except ValueError:
        return False
