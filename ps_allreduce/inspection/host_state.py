"""How a host finds itself and the others before a run.

Decides where each fact of a check-up comes from.  The launchers decide what of it is good or bad.
TensorFlow is not used; only what it has imported is looked at.
"""

from __future__ import annotations

import os
import resource
import site
import socket
import statistics
import sys
import sysconfig
import tempfile
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil

from ps_allreduce.environment import EnvironmentKind, environment_kind
from ps_allreduce.inspection import questions
from ps_allreduce.kernel_files import GROUPS, memory_limits, read_text, usable_cores
from ps_allreduce.record.provenance import ROOT, program_digest

#: How long the host is watched before anything is done there.
WATCH_S = 1.0

CALL_TIMEOUT_S = 5.0

#: A name that nobody knows takes seconds, and many calls may run into their timeout.
NUM_THREADS = 32

LOOPBACK = ("127.", "::1")


def find_state(peers: Sequence[questions.Peer]) -> questions.HostState:
    """Look at this host, and from here at the others."""
    busy = busy_share(usable_cores(), WATCH_S)  # before this process does anything
    with ThreadPoolExecutor(NUM_THREADS) as pool:
        views = list(pool.map(see_peer, peers))
    user_site = site.getusersitepackages()
    user_modules, outside_modules = strange_modules(module_files(), own_places(), user_site)
    return questions.HostState(
        busy_share=busy,
        free_bytes=psutil.virtual_memory().available,
        memory_limit_bytes=memory_limit(*GROUPS),
        open_files=resource.getrlimit(resource.RLIMIT_NOFILE)[0],
        addresses=own_addresses(),
        digest=program_digest(),
        proxies=questions.grpc_proxies(os.environ),
        user_site=user_site if site.ENABLE_USER_SITE else "",
        user_modules=user_modules,
        outside_modules=outside_modules,
        locked=environment_kind() is EnvironmentKind.VENV,
        temporary=temporary_folder(os.environ),
        peers={peer.host: view for peer, view in zip(peers, views, strict=True)},
    )


def busy_share(cores: Collection[int], seconds: float) -> float:
    """How much of these cores is in use while this process waits."""
    shares = psutil.cpu_percent(interval=seconds, percpu=True)
    return statistics.mean([shares[core] for core in cores if core < len(shares)] or shares) / 100


def see_peer(peer: questions.Peer) -> questions.PeerSeen:
    """Look another host up by name and by address, and call it."""
    begin = time.monotonic()
    resolved, reverse = addresses_of(peer.name), names_of(peer.address)
    lookup_s = time.monotonic() - begin
    return questions.PeerSeen(
        resolved=resolved, reverse=reverse, lookup_s=lookup_s, unreached=call_peer(peer)
    )


def addresses_of(name: str) -> tuple[str, ...]:
    """The IPv4 addresses that a name leads to."""
    try:
        answers = socket.getaddrinfo(name, None, socket.AF_INET, socket.SOCK_STREAM)
    except OSError:
        return ()
    return tuple(dict.fromkeys(str(address[0]) for *_, address in answers))


def names_of(address: str) -> tuple[str, ...]:
    """The names that an address leads to."""
    try:
        name, aliases, _ = socket.gethostbyaddr(address)
    except OSError:
        return ()
    return (name, *aliases)


def call_peer(peer: questions.Peer) -> str:
    """Why another host cannot be reached; empty if it can, and is the right one."""
    try:
        place = (peer.address, peer.port)
        with (
            socket.create_connection(place, CALL_TIMEOUT_S) as connection,
            connection.makefile("rb") as answer,
        ):
            name = answer.read().decode(errors="replace")
    except OSError as error:
        return error.strerror or str(error)
    return "" if name == peer.name else f"{name or 'somebody else'} answers at {peer.address}"


def own_addresses() -> tuple[str, ...]:
    """Addresses of this host, of both families, without the loopback's."""
    families = (socket.AF_INET, socket.AF_INET6)
    addresses = [
        address.address.partition("%")[0]
        for of_interface in psutil.net_if_addrs().values()
        for address in of_interface
        if address.family in families
    ]
    return tuple(address for address in addresses if not address.startswith(LOOPBACK))


def usable_memory() -> int:
    """Bytes of memory that this host has, or that the control groups of this process allow it."""
    return memory_limit(*GROUPS) or psutil.virtual_memory().total


def memory_limit(groups: Path, root: Path) -> int | None:
    """The memory that the control groups of this process allow it, in bytes.

    Args:
        groups: the list of them, as /proc/self/cgroup.
        root: where they are mounted.
    """
    installed = psutil.virtual_memory().total
    limits = memory_limits(groups, root)
    return min((limit for limit in limits if limit < installed), default=None)


def module_files() -> dict[str, str]:
    """The files of all modules that this process has imported, by name."""
    files = {name: getattr(module, "__file__", None) for name, module in list(sys.modules.items())}
    return {name: file for name, file in files.items() if file}


def own_places() -> list[str]:
    """Where modules of the environment and of the checkout are."""
    standard = [sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")]
    return [sys.prefix, sys.exec_prefix, sys.base_prefix, *standard, str(ROOT)]


def strange_modules(
    files: Mapping[str, str], places: Iterable[str], user_site: str
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Packages from the user's own folder, and others from outside of the environment.

    Args:
        files: of the modules that were imported, by name.
        places: folders of the environment and of the checkout.
        user_site: folder of the user's own packages.
    """
    inside = tuple(f"{path}/" for place in places for path in (place, os.path.realpath(place)))
    user, outside = [], []
    for name, file in files.items():
        package = name.partition(".")[0]
        if file.startswith(f"{user_site}/"):
            user.append(package)
        elif not file.startswith(inside) and not os.path.realpath(file).startswith(inside):
            outside.append(package)
    return tuple(dict.fromkeys(user)), tuple(dict.fromkeys(outside))


def temporary_folder(environment: Mapping[str, str]) -> questions.TemporaryFolder:
    """Where this host keeps the files of a run."""
    path = tempfile.gettempdir()
    problem, free_bytes = "", 0
    try:
        with tempfile.TemporaryFile() as stream:
            stream.write(b"x")
        space = os.statvfs(path)
        free_bytes = space.f_bavail * space.f_frsize
    except OSError as error:
        problem = error.strerror or str(error)
    return questions.TemporaryFolder(
        path=path,
        asked=environment.get("TMPDIR", ""),
        file_system=file_system_of(path, read_text(Path("/proc/self/mounts"))),
        free_bytes=free_bytes,
        problem=problem,
    )


def file_system_of(path: str, mounts: str) -> str:
    """The type of the file system that a path is on, from the text of /proc/self/mounts."""
    best, kind = "", "unknown"
    for line in mounts.splitlines():
        _, place, type_there, *_ = line.split()
        # Blanks are octal numbers there; of two mounts at one place the later one counts.
        place = place.replace(r"\040", " ")
        if Path(path).is_relative_to(place) and len(place) >= len(best):
            best, kind = place, type_there
    return kind
