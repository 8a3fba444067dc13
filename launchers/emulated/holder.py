"""Hold an emulated network until the launcher is gone.

`python -m launchers.emulated.holder --socket FD`, started in a network namespace of its own, which
becomes the switch.  Every host is a network and a UTS namespace that nothing but open descriptors
of this process keeps: when it ends, however it ends, and the hosts' processes with it, the kernel
removes everything.  What the network looks like is decided in `switch` and `shaping`.
"""

from __future__ import annotations

import ctypes
import os
import signal
import socket
from concurrent.futures import ThreadPoolExecutor

import click
from pyroute2 import IPRoute  # type: ignore[import-untyped]

from launchers.emulated.messages import Held, HeldHost, HoldNetwork, decode, encode
from launchers.emulated.switch import (
    INTERFACE,
    address_of,
    build_host,
    build_switch,
    plug_in_host,
)
from ps_allreduce.network import EmulatedNetwork

CLONE_NEWUTS = 0x04000000

CLONE_NEWNET = 0x40000000

PR_SET_PDEATHSIG = 1

LIBC = ctypes.CDLL(None, use_errno=True)


def hold(request: HoldNetwork) -> Held:
    """Build the network that was asked for."""
    switch = os.open("/proc/self/ns/net", os.O_RDONLY)
    with IPRoute() as ip:
        build_switch(ip, request.network)
        # A thread has namespaces of its own, as long as it is not the first.
        with ThreadPoolExecutor(max_workers=1) as thread:
            hosts = [
                thread.submit(_make_host, request.network, host, name, switch).result()
                for host, name in enumerate(request.names)
            ]
        for host in range(len(hosts)):
            plug_in_host(ip, request.network, host)
    return Held(pid=os.getpid(), hosts=tuple(hosts))


def _make_host(network: EmulatedNetwork, host: int, name: str, switch: int) -> HeldHost:
    if LIBC.unshare(CLONE_NEWNET | CLONE_NEWUTS):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    socket.sethostname(name)
    with IPRoute() as ip:
        build_host(ip, network, host, switch)
    return HeldHost(
        name=name,
        address=address_of(host),
        interface=INTERFACE,
        net=_kept("net"),
        uts=_kept("uts"),
    )


def _kept(kind: str) -> str:
    """Keep a namespace of this thread; the path is good for as long as this process lives."""
    descriptor = os.open(f"/proc/thread-self/ns/{kind}", os.O_RDONLY)
    return f"/proc/{os.getpid()}/fd/{descriptor}"


@click.command()
@click.option("--socket", "descriptor", type=int, required=True, help="Inherited socket.")
def main(descriptor: int) -> None:
    """Hold the network that one launcher asks for until it closes the socket."""
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    with socket.socket(fileno=descriptor) as connection:
        line = connection.makefile("rb").readline()
        if line:
            connection.sendall(encode(hold(decode(HoldNetwork, line))))
            connection.recv(1)


if __name__ == "__main__":
    main()
