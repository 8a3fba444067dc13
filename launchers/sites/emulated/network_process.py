"""The process that keeps an emulated network until the launcher is gone.

`python -m launchers.sites.emulated.network_process --socket FD` is started in a network namespace
of its own, which becomes the switch.  Every host is a network and a UTS namespace that only the
open descriptors of this process keep.  When it has ended, in whatever way, and with it the hosts'
processes, the kernel removes everything.  `switch` decides what the network is like.

Decides which of TCP's settings are pinned, and to what.  Namespaces inherit some of them from the
machine, and results followed: they lost other amounts of packets under BBR than under CUBIC.
"""

from __future__ import annotations

import ctypes
import os
import signal
import socket
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click
from pyroute2 import IPRoute, NetlinkError  # type: ignore[import-untyped]

from launchers.sites.emulated.held_network import (
    CountDropped,
    EmulatedHost,
    HeldNetwork,
    HoldNetwork,
    decode_request,
    encode,
    enter_words,
    explain_refusal,
    read_settings,
)
from launchers.sites.emulated.switch import (
    INTERFACE,
    PREFIX_LENGTH,
    SUBNET,
    address_of,
    build_host,
    build_switch,
    check_kernel,
    dropped_packets,
    limit_host,
    limit_switch,
    plug_in_host,
)
from ps_allreduce.errors import LaunchError, SuiteError, UserError
from ps_allreduce.point.network import EmulatedNetwork
from ps_allreduce.process import signal_when_parent_ends

#: The kernel's own defaults on a machine with some gigabytes of memory, as tcp(7) and the kernel's
#: Documentation/networking/ip-sysctl.rst have them.  Only the metrics differ: with those of a run
#: that lost packets, the next one would begin slowly.
PINNED: Mapping[str, str] = {
    "tcp_rmem": "4096 131072 6291456",
    "tcp_wmem": "4096 16384 4194304",
    "tcp_slow_start_after_idle": "1",
    "tcp_no_metrics_save": "1",
    "tcp_notsent_lowat": "4294967295",
    "tcp_limit_output_bytes": "4194304",
}

SETTINGS = Path("/proc/sys/net/ipv4")

#: RTPROT_KERNEL: routes that the kernel makes by itself for an address.
_OF_KERNEL = 2

#: To the other hosts (RT_SCOPE_LINK), and to the host itself (RT_SCOPE_HOST, RTN_LOCAL,
#: RT_TABLE_LOCAL), where a server and a worker may be.
_TO_OTHERS = {"dst": SUBNET, "dst_len": PREFIX_LENGTH, "scope": 253, "proto": _OF_KERNEL}
_TO_ITSELF = {"dst_len": 32, "scope": 254, "proto": _OF_KERNEL, "type": 2, "table": 255}


def pin_tcp(folder: Path = SETTINGS) -> None:
    """Give this thread's network namespace the settings that its kernel knows.

    Raises:
        UserError: one cannot be written, and has another value.
    """
    for name, wanted in PINNED.items():
        path = folder / name
        if path.exists() and _value(path) != wanted:
            _write(path, wanted)


def _write(path: Path, wanted: str) -> None:
    try:
        path.write_text(wanted, encoding="ascii")
        problem = f"it stays {_value(path)}"
    except OSError as error:
        problem = str(error.strerror)
    if _value(path) != wanted:
        raise UserError(
            f"emulated hosts need {path} to be {wanted!r}, which cannot be set ({problem}): have "
            "root set it on this machine, or run this where /proc/sys can be written."
        )


def _value(path: Path) -> str:
    return " ".join(path.read_text(encoding="ascii").split())


def use_congestion(ip: Any, network: EmulatedNetwork, host: int) -> None:
    """Give all traffic of the host the network's congestion control and timeout.

    Args:
        ip: pyroute2.IPRoute in the host's namespace.

    Raises:
        UserError: the kernel does not have them.
    """
    (index,) = ip.link_lookup(ifname=INTERFACE)
    address = address_of(host)
    wanted = {"cc_algo": network.congestion, "rto_min": round(network.rto_min_s * 1e3)}
    for route in (_TO_OTHERS, {"dst": address, **_TO_ITSELF}):
        try:
            ip.route("replace", **route, oif=index, prefsrc=address, metrics=wanted)
        except NetlinkError as error:
            raise UserError(_unknown(network.congestion)) from error
        found = ip.get_routes(oif=index, dst_len=route["dst_len"])[0].get_attr("RTA_METRICS")
        if found is None or found.get_attr("RTAX_CC_ALGO") != network.congestion:
            raise UserError(_unknown(network.congestion))


def _unknown(congestion: str) -> str:
    path = SETTINGS / "tcp_available_congestion_control"
    known = ", ".join(path.read_text(encoding="ascii").split())
    return (
        f"this kernel has no congestion control {congestion}: choose one of {known} with "
        f"--congestion, or have root load its module (modprobe tcp_{congestion})."
    )


CLONE_NEWUTS = 0x04000000

CLONE_NEWNET = 0x40000000

LIBC = ctypes.CDLL(None, use_errno=True)


@dataclass(slots=True)
class Keeper:
    """Keeps one network.

    Attributes:
        hosts: of the network; none as long as there is none.
        namespaces: descriptors of the hosts' network namespaces.
        thread: that which moves from host to host; its namespaces are its own.
    """

    hosts: tuple[EmulatedHost, ...] = ()
    namespaces: list[int] = field(default_factory=list)
    thread: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(max_workers=1))

    def answer(self, request: HoldNetwork | CountDropped) -> HeldNetwork:
        """Build the network, give its links other rates or count what was lost; or say why not."""
        try:
            with IPRoute() as ip:
                if isinstance(request, CountDropped):
                    return HeldNetwork(dropped=dropped_packets(ip, len(self.hosts)))
                check_kernel(ip, request.network)
                if not self.hosts:
                    self._build(ip, request)
                limit_switch(ip, request.network)
            for host in range(len(self.hosts)):
                self.thread.submit(self._limit_host, request.network, host).result()
        except NetlinkError as error:
            refused = f"the kernel refuses to build the network ({error.args[1]})."
            return HeldNetwork(error=refused)
        except SuiteError as error:
            return HeldNetwork(error=str(error), user_error=isinstance(error, UserError))
        return HeldNetwork(hosts=self.hosts)

    def _build(self, ip: Any, request: HoldNetwork) -> None:
        build_switch(ip, request.network)
        switch = os.open("/proc/self/ns/net", os.O_RDONLY)
        try:
            hosts = [
                self.thread.submit(self._make_host, request, host, switch).result()
                for host in range(len(request.names))
            ]
        finally:
            os.close(switch)
        for host in range(len(hosts)):
            plug_in_host(ip, request.network, host)
        self.hosts = tuple(hosts)

    def _make_host(self, request: HoldNetwork, host: int, switch: int) -> EmulatedHost:
        """Move to namespaces of its own and furnish them."""
        if LIBC.unshare(CLONE_NEWNET | CLONE_NEWUTS):
            raise UserError(explain_refusal(os.strerror(ctypes.get_errno()), read_settings()))
        socket.sethostname(request.names[host])
        with IPRoute() as ip:
            build_host(ip, request.network, host, switch)
        self.namespaces.append(_kept("net"))
        net, uts = (_path_of(descriptor) for descriptor in (self.namespaces[-1], _kept("uts")))
        return EmulatedHost(
            name=request.names[host],
            address=address_of(host),
            interface=INTERFACE,
            enter=enter_words(os.getpid(), net, uts, request.with_user),
        )

    def _limit_host(self, network: EmulatedNetwork, host: int) -> None:
        if LIBC.setns(self.namespaces[host], CLONE_NEWNET):
            raise LaunchError(f"host {host} cannot be entered: {os.strerror(ctypes.get_errno())}.")
        with IPRoute() as ip:
            limit_host(ip, network, host)
            use_congestion(ip, network, host)
        pin_tcp()


def _kept(kind: str) -> int:
    """A descriptor that keeps a namespace of this thread."""
    return os.open(f"/proc/thread-self/ns/{kind}", os.O_RDONLY)


def _path_of(descriptor: int) -> str:
    """Good for as long as this process lives."""
    return f"/proc/{os.getpid()}/fd/{descriptor}"


@click.command()
@click.option("--socket", "descriptor", type=int, required=True, help="Inherited socket.")
def main(descriptor: int) -> None:
    """Hold the network that one launcher asks for until it closes the socket.

    Every further request gives the links of this network other rates.
    """
    signal_when_parent_ends(signal.SIGKILL)
    keeper = Keeper()
    with socket.socket(fileno=descriptor) as connection, connection.makefile("rwb") as lines:
        for line in iter(lines.readline, b""):
            lines.write(encode(keeper.answer(decode_request(line))))
            lines.flush()


if __name__ == "__main__":
    main()
