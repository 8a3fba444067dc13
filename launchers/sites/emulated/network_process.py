"""The process that keeps an emulated network until the launcher is gone.

`python -m launchers.sites.emulated.network_process --socket FD` is started in a network namespace
of its own, which becomes the switch.  Every host is a network and a UTS namespace that only the
open descriptors of this process keep.  When it has ended, in whatever way, and with it the hosts'
processes, the kernel removes everything.  `switch` decides what the network is like.
"""

from __future__ import annotations

import ctypes
import os
import signal
import socket
from concurrent.futures import ThreadPoolExecutor

import click
from pyroute2 import IPRoute, NetlinkError  # type: ignore[import-untyped]

from launchers.sites.emulated.held_network import (
    EmulatedHost,
    HeldNetwork,
    HoldNetwork,
    decode,
    encode,
    enter_words,
    explain_refusal,
    read_settings,
)
from launchers.sites.emulated.switch import (
    INTERFACE,
    address_of,
    build_host,
    build_switch,
    check_kernel,
    plug_in_host,
)
from ps_allreduce.errors import LaunchError, SuiteError, UserError
from ps_allreduce.signals import signal_when_parent_ends

CLONE_NEWUTS = 0x04000000

CLONE_NEWNET = 0x40000000

LIBC = ctypes.CDLL(None, use_errno=True)


def answer(request: HoldNetwork) -> HeldNetwork:
    """Build the network, or say why not."""
    try:
        return HeldNetwork(hosts=_build(request))
    except SuiteError as error:
        return HeldNetwork(error=str(error), user_error=isinstance(error, UserError))


def _build(request: HoldNetwork) -> tuple[EmulatedHost, ...]:
    network = request.network
    try:
        with IPRoute() as ip:
            check_kernel(ip, network)
            build_switch(ip, network)
            hosts = _make_hosts(request)
            for host in range(len(hosts)):
                plug_in_host(ip, network, host)
        return hosts
    except NetlinkError as error:
        raise LaunchError(f"the kernel refuses to build the network ({error.args[1]}).") from error


def _make_hosts(request: HoldNetwork) -> tuple[EmulatedHost, ...]:
    """Make all hosts in a thread: unlike the first one's, its namespaces are its own."""
    switch = os.open("/proc/self/ns/net", os.O_RDONLY)
    try:
        with ThreadPoolExecutor(max_workers=1) as thread:
            made = [
                thread.submit(_make_host, request, host, switch)
                for host in range(len(request.names))
            ]
            return tuple(host.result() for host in made)
    finally:
        os.close(switch)


def _make_host(request: HoldNetwork, host: int, switch: int) -> EmulatedHost:
    """Move this thread to namespaces of its own and furnish them."""
    if LIBC.unshare(CLONE_NEWNET | CLONE_NEWUTS):
        raise UserError(explain_refusal(os.strerror(ctypes.get_errno()), read_settings()))
    socket.sethostname(request.names[host])
    with IPRoute() as ip:
        build_host(ip, request.network, host, switch)
    return EmulatedHost(
        name=request.names[host],
        address=address_of(host),
        interface=INTERFACE,
        enter=enter_words(os.getpid(), _keep("net"), _keep("uts"), request.with_user),
    )


def _keep(kind: str) -> str:
    """Keep a namespace of this thread; the path is good for as long as this process lives."""
    descriptor = os.open(f"/proc/thread-self/ns/{kind}", os.O_RDONLY)
    return f"/proc/{os.getpid()}/fd/{descriptor}"


@click.command()
@click.option("--socket", "descriptor", type=int, required=True, help="Inherited socket.")
def main(descriptor: int) -> None:
    """Hold the network that one launcher asks for until it closes the socket."""
    signal_when_parent_ends(signal.SIGKILL)
    with socket.socket(fileno=descriptor) as connection, connection.makefile("rwb") as lines:
        line = lines.readline()
        if line:
            lines.write(encode(answer(decode(HoldNetwork, line))))
            lines.flush()
            lines.read()


if __name__ == "__main__":
    main()
