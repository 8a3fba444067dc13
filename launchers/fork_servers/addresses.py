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
    host: str, interfaces: Sequence[Interface], wanted: str | None, preset: str | None
) -> str:
    """The address that a host's tasks are reached by.

    Args:
        wanted: the network that the user asked for, as `choose_interface` takes it.
        preset: what the site says about it; None if it leaves it to the interfaces.

    Raises:
        UserError: the host has none in that network.
    """
    if wanted is None and preset is not None:
        return preset
    return choose_interface(host, interfaces, wanted).address


def choose_interface(host: str, interfaces: Sequence[Interface], wanted: str | None) -> Interface:
    """The interface that a host's tasks are reached by.

    Args:
        wanted: the name of an interface, a subnet (`10.1.0.0/16`) or an address; None takes the
            first that is not the loopback.

    Raises:
        UserError: the host has none such.
    """
    outside = [one for one in interfaces if one.name != LOOPBACK]
    if wanted is None:
        candidates = outside or list(interfaces)
    else:
        candidates = [one for one in interfaces if _is_wanted(one, wanted)]
    if not candidates:
        there = ", ".join(f"{one.name} ({one.address}/{one.prefix_length})" for one in interfaces)
        raise UserError(
            f"host {host} has no interface {wanted or 'with an address'}; it has: "
            f"{there or 'none'}. Choose one with --interface, by name or by subnet."
        )
    return candidates[0]


def _is_wanted(interface: Interface, wanted: str) -> bool:
    if interface.name == wanted:
        return True
    try:
        return ipaddress.ip_address(interface.address) in ipaddress.ip_network(wanted, strict=False)
    except ValueError:
        return False
