"""What TCP is like on emulated hosts, whatever this machine has chosen for itself.

Decides which settings of the kernel are pinned, and to what.  Namespaces inherit some of them from
the machine, and results followed: they lost other amounts of packets under BBR than under CUBIC.

The congestion control and the least retransmission timeout belong to the route between hosts
(ip-route(8): congctl, rto_min).  There they hold without root and where /proc/sys cannot be
written, and of every algorithm that the kernel has: a namespace may only choose some of them in
/proc/sys.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyroute2 import NetlinkError  # type: ignore[import-untyped]

from launchers.sites.emulated.switch import INTERFACE, PREFIX_LENGTH, SUBNET, address_of
from ps_allreduce.errors import UserError
from ps_allreduce.point.network import EmulatedNetwork

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
