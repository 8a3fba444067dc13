"""Hold an emulated network until the launcher is gone.

`python -m launchers.sites.emulated.holder --socket FD`, started in a network namespace of its own,
which becomes the switch. Every host is a network and a UTS namespace that nothing but open
descriptors of this process keeps: when it ends, however it ends, and the hosts' processes with it,
the kernel removes everything. What the network looks like is decided in `switch` and `shaping`.
"""

from __future__ import annotations

import ctypes
import os
import signal
import socket
from concurrent.futures import ThreadPoolExecutor

import click
from pyroute2 import IPRoute, NetlinkError  # type: ignore[import-untyped]

from launchers.sites.emulated.messages import Held, HeldHost, HoldNetwork, decode, encode
from launchers.sites.emulated.namespaces import explain_refusal, read_settings
from launchers.sites.emulated.switch import (
    INTERFACE,
    address_of,
    build_host,
    build_switch,
    check_kernel,
    plug_in_host,
)
from ps_allreduce.errors import LaunchError, SuiteError, UserError
from ps_allreduce.point.network import EmulatedNetwork

CLONE_NEWUTS = 0x04000000

CLONE_NEWNET = 0x40000000

PR_SET_PDEATHSIG = 1

LIBC = ctypes.CDLL(None, use_errno=True)


def answer(request: HoldNetwork) -> Held:
    """Build the network, or say why not."""
    try:
        return Held(pid=os.getpid(), hosts=_build(request))
    except SuiteError as error:
        mistake = isinstance(error, UserError)
        return Held(pid=os.getpid(), error=str(error), user_error=mistake)


def _build(request: HoldNetwork) -> tuple[HeldHost, ...]:
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


def _make_hosts(request: HoldNetwork) -> tuple[HeldHost, ...]:
    """Make all hosts in a thread: unlike the first one's, its namespaces are its own."""
    switch = os.open("/proc/self/ns/net", os.O_RDONLY)
    try:
        with ThreadPoolExecutor(max_workers=1) as thread:
            made = [
                thread.submit(_make_host, request.network, host, name, switch)
                for host, name in enumerate(request.names)
            ]
            return tuple(host.result() for host in made)
    finally:
        os.close(switch)


def _make_host(network: EmulatedNetwork, host: int, name: str, switch: int) -> HeldHost:
    """Move this thread to namespaces of its own and furnish them."""
    if LIBC.unshare(CLONE_NEWNET | CLONE_NEWUTS):
        raise UserError(explain_refusal(os.strerror(ctypes.get_errno()), read_settings()))
    socket.sethostname(name)
    with IPRoute() as ip:
        build_host(ip, network, host, switch)
    return HeldHost(
        name=name,
        address=address_of(host),
        interface=INTERFACE,
        net=_keep("net"),
        uts=_keep("uts"),
    )


def _keep(kind: str) -> str:
    """Keep a namespace of this thread; the path is good for as long as this process lives."""
    descriptor = os.open(f"/proc/thread-self/ns/{kind}", os.O_RDONLY)
    return f"/proc/{os.getpid()}/fd/{descriptor}"


@click.command()
@click.option("--socket", "descriptor", type=int, required=True, help="Inherited socket.")
def main(descriptor: int) -> None:
    """Hold the network that one launcher asks for until it closes the socket."""
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    with socket.socket(fileno=descriptor) as connection, connection.makefile("rwb") as lines:
        line = lines.readline()
        if line:
            lines.write(encode(answer(decode(HoldNetwork, line))))
            lines.flush()
            lines.read()


if __name__ == "__main__":
    main()
