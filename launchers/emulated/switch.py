"""Bridges and cables: what lies between the hosts of an emulated network.

Decides names and addresses.  The switch lives in the network namespace of the process that builds
it; namespaces are made elsewhere.
"""

from __future__ import annotations

from typing import Any

from launchers.emulated.shaping import limit_rate
from ps_allreduce.network import EmulatedNetwork

INTERFACE = "eth0"

PREFIX_LENGTH = 16


def address_of(host: int) -> str:
    """The address of a host."""
    return f"10.77.0.{host + 1}"


def build_switch(ip: Any, network: EmulatedNetwork) -> None:
    """A bridge per rack; two are joined by an uplink."""
    for rack in range(network.racks):
        ip.link("add", ifname=f"rack{rack}", kind="bridge")
        ip.link("set", index=_index(ip, f"rack{rack}"), state="up")
    if network.racks == 2:
        ip.link("add", ifname="uplink0", kind="veth", peer={"ifname": "uplink1"})
        for rack in range(2):
            _plug_in(ip, f"uplink{rack}", rack, network.uplink_bits_per_s)


def build_host(ip: Any, network: EmulatedNetwork, host: int, switch: int) -> None:
    """Give a host, in whose namespace `ip` works, its end of a cable to the switch.

    Args:
        ip: pyroute2.IPRoute.
        host: which one, counted from 0.
        switch: descriptor of the switch's network namespace.
    """
    peer = {"ifname": f"port{host}", "net_ns_fd": switch}
    ip.link("add", ifname=INTERFACE, kind="veth", peer=peer)
    index = _index(ip, INTERFACE)
    ip.addr("add", index=index, address=address_of(host), prefixlen=PREFIX_LENGTH)
    limit_rate(ip, index, network.link_bits_per_s(host))
    for name in ("lo", INTERFACE):
        ip.link("set", index=_index(ip, name), state="up")


def plug_in_host(ip: Any, network: EmulatedNetwork, host: int) -> None:
    """Connect the other end of a host's cable."""
    _plug_in(ip, f"port{host}", network.rack_of(host), network.link_bits_per_s(host))


def _plug_in(ip: Any, name: str, rack: int, bits_per_s: float | None) -> None:
    index = _index(ip, name)
    limit_rate(ip, index, bits_per_s)
    ip.link("set", index=index, master=_index(ip, f"rack{rack}"), state="up")


def _index(ip: Any, name: str) -> int:
    (index,) = ip.link_lookup(ifname=name)
    return int(index)
