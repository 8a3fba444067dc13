"""Bridges and cables: what lies between the hosts of an emulated network.

Decides names and addresses, how fast a link sends and how late.  The switch lives in the network
namespace of the process that builds it; namespaces are made in `network_process`.

A token bucket lets through what it has saved up, so the burst is what a link gives away after a
pause: it should be short.  It must still outlast the lateness of the kernel's timer (tc-tbf(8):
what comes in per tick must fit), and hold what TCP hands over in one piece: segmentation offload
makes trains of up to 64 KB, and a train above the burst is cut into single packets one by one
(tbf_enqueue and tbf_segment in Linux, net/sched/sch_tbf.c), which cost a third of 1 Gbit/s when
both directions were busy.  So a host's trains are shortened (`gso_max_size`) until two fit into
its burst, and where hosts differ, whoever receives has room for two of the longest.  Every train
costs processor time, which emulated hosts share and are soon limited by: the burst is therefore
stretched for the sake of longer trains, as far as it stays about a millisecond.
"""

from __future__ import annotations

import errno
import math
from typing import Any

from pyroute2 import NetlinkError  # type: ignore[import-untyped]

from launchers.sites.emulated.random_loss import CLSACT, lose_at_random
from ps_allreduce.errors import UserError
from ps_allreduce.point.network import EmulatedNetwork

INTERFACE = "eth0"

LOOPBACK = "lo"

SUBNET = "10.77.0.0"

PREFIX_LENGTH = 16

MEANINGS = {"tbf": "the rate of a link", "netem": "delay"}

#: So much time of a link is given away after a pause.  A virtual machine's timer is late by
#: hundreds of microseconds.
BURST_S = 0.5e-3

#: So much if trains can be longer then.  At 1 Gbit/s trains of 64 KB instead of 28 KB.
LONG_BURST_S = 1.2e-3

#: With less, acknowledgements cost too much; against a gradient's megabytes it is little.
MIN_BURST_BYTES = 32 * 1024

#: The kernel's own limit.
MAX_TRAIN_BYTES = 65536

#: The kernel's own limit (GSO_MAX_SEGS in linux/netdevice.h).
MAX_TRAIN_SEGMENTS = 65535

#: Two trains and the headers of all their packets, which the kernel counts as well.
TRAINS_PER_BURST = 2.2

#: A host never loses packets of its own: Linux stops a socket that has so much on its way to the
#: link (tcp_limit_output_bytes), and this holds what several of them have.
HOST_QUEUE_BYTES = 64_000_000

#: A port never buffers more than its link sends in this time, unless that is less than
MOST_QUEUE_S = 2.0

#: one train of each of two hosts.
LEAST_QUEUE_BYTES = 2 * 65536

#: Handles that the kernel knows the disciplines by: `1:`, its only class `1:1`, and `10:`.
ROOT, CLASS, CHILD = 0x10000, 0x10001, 0x100000

#: netem counts packets; enough for 10 ms at 32 Gbit/s even without offload.
NETEM_PACKETS = 100_000


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
        _remove_discipline(ip, index)


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
            _plug_in(ip, _index(ip, f"uplink{rack}"), rack)


def build_host(ip: Any, network: EmulatedNetwork, host: int, switch: int) -> None:
    """Give a host its end of a cable to the switch.

    Args:
        ip: pyroute2.IPRoute in the host's namespace.
        host: which one, counted from 0.
        switch: descriptor of the switch's network namespace.
    """
    peer = {"ifname": f"port{host}", "net_ns_fd": switch}
    ip.link("add", ifname=INTERFACE, kind="veth", peer=peer)
    ip.addr("add", index=_index(ip, INTERFACE), address=address_of(host), prefixlen=PREFIX_LENGTH)
    for name in (LOOPBACK, INTERFACE):
        ip.link("set", index=_index(ip, name), state="up")


def plug_in_host(ip: Any, network: EmulatedNetwork, host: int) -> None:
    """Connect the other end of a host's cable."""
    _plug_in(ip, _index(ip, f"port{host}"), network.rack_of(host))


def limit_host(ip: Any, network: EmulatedNetwork, host: int) -> None:
    """Limit what a host sends, instead of as before.

    Args:
        ip: pyroute2.IPRoute in the host's namespace.
    """
    index, rate = _index(ip, INTERFACE), network.link_bits_per_s(host)
    # What is lost at random are packets, and no trains of them.
    segments = 1 if network.loss else MAX_TRAIN_SEGMENTS
    ip.link("set", index=index, gso_max_size=train_bytes(rate), gso_max_segs=segments)
    shape(ip, index, rate, HOST_QUEUE_BYTES)


def limit_switch(ip: Any, network: EmulatedNetwork) -> None:
    """Limit, delay and lose what hosts receive, and limit the uplink, instead of as before.

    Whatever way a packet takes, it passes exactly one end that delays it and may lose it.
    """
    train = longest_train(network)
    for host in range(network.num_hosts):
        index, rate = _index(ip, f"port{host}"), network.link_bits_per_s(host)
        shape(ip, index, rate, network.port_buffer_bytes, train=train, delay_s=network.delay_s)
        lose_at_random(ip, index, network.loss)
    if network.racks == 2:
        for rack in range(2):
            index, rate = _index(ip, f"uplink{rack}"), network.uplink_bits_per_s
            shape(ip, index, rate, network.port_buffer_bytes, train=train)


def dropped_packets(ip: Any, num_hosts: int) -> tuple[int, ...]:
    """What the port towards each host has lost since its link was last limited.

    Args:
        ip: pyroute2.IPRoute in the switch's namespace.
    """
    lost: dict[tuple[int, bool], int] = {}
    for discipline in ip.get_qdiscs():
        statistics = discipline.get_attr("TCA_STATS2")
        queue = statistics.get_attr("TCA_STATS_QUEUE") if statistics else None
        # What a discipline within another one loses, the outer one counts as well.
        place = discipline["index"], discipline["parent"] == CLSACT
        lost[place] = max(lost.get(place, 0), queue["drops"] if queue else 0)
    ports = [_index(ip, f"port{host}") for host in range(num_hosts)]
    return tuple(lost[port, False] + lost.get((port, True), 0) for port in ports)


def _plug_in(ip: Any, index: int, rack: int) -> None:
    ip.link("set", index=index, master=_index(ip, f"rack{rack}"), state="up")


def _index(ip: Any, name: str) -> int:
    (index,) = ip.link_lookup(ifname=name)
    return int(index)


def burst_bytes(bits_per_s: float, train: int = 0) -> int:
    """What a link sends at once after a pause.

    Args:
        train: bytes of the longest train that comes in.
    """
    lengthened = min(bits_per_s / 8 * LONG_BURST_S, MAX_TRAIN_BYTES * TRAINS_PER_BURST)
    sizes = (bits_per_s / 8 * BURST_S, lengthened, train * TRAINS_PER_BURST)
    return max(MIN_BURST_BYTES, math.ceil(max(sizes)))


def queue_bytes(bits_per_s: float, wanted: int) -> int:
    """What may wait at a link before packets are lost: as wanted, where that is no long wait."""
    return min(wanted, max(LEAST_QUEUE_BYTES, round(bits_per_s / 8 * MOST_QUEUE_S)))


def train_bytes(bits_per_s: float | None) -> int:
    """What TCP may hand over in one piece to a link of such a rate."""
    if bits_per_s is None:
        return MAX_TRAIN_BYTES
    return min(MAX_TRAIN_BYTES, int(burst_bytes(bits_per_s) / TRAINS_PER_BURST))


def longest_train(network: EmulatedNetwork) -> int:
    """Bytes of the longest train that any host sends."""
    return max(train_bytes(network.link_bits_per_s(host)) for host in range(network.num_hosts))


def needed_disciplines(network: EmulatedNetwork) -> dict[str, dict[str, int]]:
    """The queueing disciplines that a network is made of, each with arguments to try it with."""
    rates = [network.bits_per_s, network.slow_bits_per_s, network.uplink_bits_per_s]
    needed = {"tbf": _bucket(1e9, HOST_QUEUE_BYTES, 0)} if any(rates) else {}
    return needed | ({"netem": _delay_line(1e-3)} if network.delay_s else {})


def shape(
    ip: Any,
    index: int,
    bits_per_s: float | None,
    buffer_bytes: int,
    *,
    train: int = 0,
    delay_s: float = 0.0,
) -> None:
    """Limit what an interface sends, and delay it, instead of as before.

    Args:
        ip: pyroute2.IPRoute in the interface's network namespace.
        index: of the interface.
        bits_per_s: None for no limit.
        buffer_bytes: that may wait before packets are lost.
        train: bytes of the longest train that comes in.
    """
    _remove_discipline(ip, index)
    if bits_per_s is not None:
        ip.tc("add", "tbf", index, ROOT, **_bucket(bits_per_s, buffer_bytes, train))
    if delay_s and bits_per_s is not None:
        ip.tc("add", "netem", index, CHILD, parent=CLASS, **_delay_line(delay_s))
    elif delay_s:
        ip.tc("add", "netem", index, ROOT, **_delay_line(delay_s))


def _remove_discipline(ip: Any, index: int) -> None:
    try:
        ip.tc("del", index=index, handle=ROOT, parent=0xFFFFFFFF)
    except NetlinkError as error:
        if error.code not in (errno.ENOENT, errno.EINVAL):  # there is none
            raise


def _bucket(bits_per_s: float, buffer_bytes: int, train: int) -> dict[str, int]:
    burst = burst_bytes(bits_per_s, train)
    return {
        "rate": round(bits_per_s / 8),
        "burst": burst,
        "limit": queue_bytes(bits_per_s, buffer_bytes) + burst,
    }


def _delay_line(delay_s: float) -> dict[str, int]:
    return {"delay": round(delay_s * 1e6), "limit": NETEM_PACKETS}
