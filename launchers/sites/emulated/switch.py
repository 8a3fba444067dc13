"""Bridges and cables: what lies between the hosts of an emulated network.

Decides names and addresses.  The switch lives in the network namespace of the process that builds
it; namespaces are made in `holder`.
"""

from __future__ import annotations

import errno
from typing import Any

from pyroute2 import NetlinkError  # type: ignore[import-untyped]

from launchers.sites.emulated.shaping import (
    ROOT,
    longest_train,
    needed_disciplines,
    shape,
    train_bytes,
)
from ps_allreduce.errors import UserError
from ps_allreduce.point.network import EmulatedNetwork

INTERFACE = "eth0"

LOOPBACK = "lo"

PREFIX_LENGTH = 16

MEANINGS = {"tbf": "the rate of a link", "netem": "delay"}


def address_of(host: int) -> str:
    """The address of a host."""
    return f"10.77.0.{host + 1}"


def check_kernel(ip: Any, network: EmulatedNetwork) -> None:
    """Try what the network needs of the kernel on an interface that nobody uses.

    Raises:
        UserError: the kernel lacks something.
    """
    index = _index(ip, LOOPBACK)
    for kind, arguments in needed_disciplines(network).items():
        try:
            ip.tc("add", kind, index, ROOT, **arguments)
        except NetlinkError as error:
            if error.code != errno.ENOENT:
                raise
            raise UserError(
                f"this kernel cannot emulate {MEANINGS[kind]}: its module sch_{kind} is missing; "
                f"ask for a network without it, or have root load the module (modprobe sch_{kind})."
            ) from error
        ip.tc("del", index=index, handle=ROOT, parent=0xFFFFFFFF)


def build_switch(ip: Any, network: EmulatedNetwork) -> None:
    """A bridge per rack; two are joined by an uplink.

    Args:
        ip: pyroute2.IPRoute in the switch's namespace.
    """
    for rack in range(network.racks):
        ip.link("add", ifname=f"rack{rack}", kind="bridge")
        ip.link("set", index=_index(ip, f"rack{rack}"), state="up")
    if network.racks == 2:
        ip.link("add", ifname="uplink0", kind="veth", peer={"ifname": "uplink1"})
        for rack in range(2):
            index = _index(ip, f"uplink{rack}")
            shape(ip, index, network.uplink_bits_per_s, train=longest_train(network))
            _plug_in(ip, index, rack)


def build_host(ip: Any, network: EmulatedNetwork, host: int, switch: int) -> None:
    """Give a host its end of a cable to the switch; it limits what the host sends.

    Args:
        ip: pyroute2.IPRoute in the host's namespace.
        host: which one, counted from 0.
        switch: descriptor of the switch's network namespace.
    """
    rate = network.link_bits_per_s(host)
    peer = {"ifname": f"port{host}", "net_ns_fd": switch}
    ip.link("add", ifname=INTERFACE, kind="veth", peer=peer)
    index = _index(ip, INTERFACE)
    ip.link("set", index=index, gso_max_size=train_bytes(rate))
    shape(ip, index, rate)
    ip.addr("add", index=index, address=address_of(host), prefixlen=PREFIX_LENGTH)
    for name in (LOOPBACK, INTERFACE):
        ip.link("set", index=_index(ip, name), state="up")


def plug_in_host(ip: Any, network: EmulatedNetwork, host: int) -> None:
    """Connect the other end of a host's cable; it limits, and delays, what the host receives.

    Whatever way a packet takes, it passes exactly one such end.
    """
    index = _index(ip, f"port{host}")
    rate = network.link_bits_per_s(host)
    shape(ip, index, rate, train=longest_train(network), delay_s=network.delay_s)
    _plug_in(ip, index, network.rack_of(host))


def _plug_in(ip: Any, index: int, rack: int) -> None:
    ip.link("set", index=index, master=_index(ip, f"rack{rack}"), state="up")


def _index(ip: Any, name: str) -> int:
    (index,) = ip.link_lookup(ifname=name)
    return int(index)
