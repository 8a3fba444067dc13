"""What tests do to emulated hosts: run daemons there, look at all that runs, kill it, unplug it.

Nothing of it outlives `end`.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from launchers.sites.emulated.held_network import EmulatedHost
from ps_allreduce.errors import LaunchError

#: Debian keeps daemons where ordinary users do not look.
SEARCH_PATH = f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin"

GONE_DEADLINE_S = 30.0

POLL_S = 0.1


def missing_for(what: str, programs: Sequence[str]) -> str:
    """What this machine lacks to have something on emulated hosts, in words; empty if nothing."""
    if os.geteuid() != 0:
        return f"{what} on emulated hosts needs root"
    needed = (*programs, "nsenter", "unshare", "setpriv", "ip")
    missing = [name for name in needed if shutil.which(name, path=SEARCH_PATH) is None]
    return f"{', '.join(missing)} not found" if missing else ""


def wait_until(is_so: Callable[[], bool], timeout_s: float, describe: Callable[[], str]) -> None:
    """Ask ten times a second.

    Raises:
        LaunchError: it did not become so in time; the description says what is the case instead.
    """
    deadline = time.monotonic() + timeout_s
    while not is_so():
        if time.monotonic() > deadline:
            raise LaunchError(f"after {timeout_s:g} s, {describe()}")
        time.sleep(POLL_S)


class Machines:
    """Emulated hosts and what was started on them.

    Attributes:
        hosts: by name.
    """

    def __init__(self, hosts: Sequence[EmulatedHost]) -> None:
        self.hosts = {host.name: host for host in hosts}
        self._networks = {name: self._network_of(name) for name in self.hosts}
        self._started: list[subprocess.Popen[Any]] = []

    def start(self, words: Sequence[str], log: Path, **options: Any) -> None:
        """Start a daemon; further options are those of Popen."""
        with log.open("ab") as output:
            process = subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=output, stderr=output, **options
            )
        self._started.append(process)

    def _network_of(self, name: str) -> int:
        """The inode of a host's network namespace."""
        return int(self._run(name, "stat", "--dereference", "--format=%i", "/proc/self/ns/net"))

    def _run(self, name: str, *command: str) -> bytes:
        words = (*self.hosts[name].enter, *command)
        return subprocess.run(words, check=True, capture_output=True, timeout=60).stdout

    def processes(self, name: str) -> dict[int, str]:
        """Command lines of all that lives on a host, by process ids of this machine."""
        found = {}
        for entry in Path("/proc").iterdir():
            if entry.name.isdecimal():
                with suppress(OSError):  # it has ended, or is a zombie
                    if (entry / "ns/net").stat().st_ino == self._networks[name]:
                        words = (entry / "cmdline").read_bytes().split(b"\0")
                        found[int(entry.name)] = b" ".join(words).decode(errors="replace").strip()
        return found

    def runs(self, name: str, text: str) -> bool:
        """Something runs on a host whose command line contains a text."""
        return any(text in line for line in self.processes(name).values())

    def kill(self, *names: str) -> None:
        """Kill all on hosts at once, as when machines fail; peers see connections end.

        Raises:
            LaunchError: a process cannot be killed.
        """
        left: dict[int, str] = {}

        def is_empty() -> bool:
            left.clear()
            for name in names:
                left.update(self.processes(name))
            for pid in left:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            return not left

        wait_until(is_empty, GONE_DEADLINE_S, lambda: f"still alive: {left}")

    def set_link(self, name: str, state: str) -> None:
        """Take the network from a host (`down`) or give it back (`up`): nobody is told."""
        self._run(name, "ip", "link", "set", "dev", self.hosts[name].interface, state)

    def end(self) -> None:
        """Kill all that runs on all hosts, and reap what was started from here."""
        self.kill(*self.hosts)
        for process in self._started:
            process.kill()  # it may be on no host
            process.wait(GONE_DEADLINE_S)
