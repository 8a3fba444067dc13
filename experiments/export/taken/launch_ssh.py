"""Start the training on several hosts by ssh, and end it on all of them together.

    python launch_ssh.py [--port P] HOSTS [arguments of train.py]

A line of the file HOSTS is a host, `[user@]name[:port]` as ssh knows it, and its address in the
network of the hosts where that differs.  Hosts are used in the order of the file.  This folder must
be at the same path on all of them; where it is missing it is copied.  Python is there where it is
here.  Every host runs `launch.py` for as long as its connection to this program lasts.  ssh must
not ask for anything.

Ctrl-C saves a checkpoint, on the first host, and ends; a second one ends at once.

Exit status: 0 the training is done, 1 a host failed, 2 a mistake in the request, 143 interrupted
and saved, 137 ended at once.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

HERE = Path(__file__).resolve().parent

OPTIONS = ("-T", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10", "-o", "ServerAliveInterval=15")

#: Of this folder, what belongs to one host alone.
NOT_COPIED = ("checkpoints", "logs")

INTERRUPTED = 143
ENDED_AT_ONCE = 137

#: Hosts that are told to end at once get so many seconds.
ENDING_S = 15.0


@dataclass(frozen=True)
class Host:
    """Where ssh goes, and the address that tasks of other hosts use; empty: what ssh says."""

    destination: str
    port: str
    address: str

    def ssh(self, *words: str) -> list[str]:
        """The command that does something there, given for a shell."""
        port = ["-p", self.port] if self.port else []
        return ["ssh", *OPTIONS, *port, "--", self.destination, *words]

    def found_address(self) -> str:
        """As stated, or the name behind an alias of the user's ssh configuration."""
        if self.address:
            return self.address
        words = ["ssh", "-G", "--", self.destination]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        names = [line.split()[1] for line in done.stdout.splitlines() if line[:9] == "hostname "]
        return names[0] if names else self.destination.rpartition("@")[2]


def read_hosts(text: str) -> list[Host]:
    """Those of a host file."""
    lines = [words for line in text.splitlines() if (words := line.partition("#")[0].split())]
    hosts = []
    for destination, *rest in lines:
        name, _, port = destination.partition(":")
        hosts.append(Host(name, port, rest[0] if rest else ""))
    return hosts


def copy_folder(host: Host) -> None:
    """See that a host has this folder."""
    here = shlex.quote(str(HERE))
    if subprocess.run(host.ssh(f"test -e {here}/train.py"), stdin=subprocess.DEVNULL).returncode:
        left_out = [f"--exclude=./{name}" for name in NOT_COPIED]
        pack = ["tar", "-cf", "-", *left_out, "-C", str(HERE), "."]
        unpack = host.ssh(f"mkdir -p {here} && tar -xf - -C {here}")
        with subprocess.Popen(pack, stdout=subprocess.PIPE) as packing:
            status = subprocess.run(unpack, stdin=packing.stdout).returncode
        if status:
            sys.exit(f"launch_ssh.py: {HERE} cannot be copied to {host.destination}.")


class Connections:
    """The connections to all hosts."""

    def __init__(self) -> None:
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        self.asked_to_end = 0

    def start(self, host: Host, command: str) -> None:
        """Start a program on a host, which ends when its input does."""
        self.running[host.destination] = subprocess.Popen(
            host.ssh(command), stdin=subprocess.PIPE, start_new_session=True
        )

    def ask_to_end(self, *_: int | FrameType | None) -> None:
        """Let the training save a checkpoint; at the second time, end it."""
        self.asked_to_end += 1
        for process in self.running.values():
            assert process.stdin is not None
            with suppress(OSError):  # it has ended already
                os.write(process.stdin.fileno(), b"end\n")

    def follow(self) -> int:
        """Wait for the end, and return the exit status."""
        while True:
            statuses = {name: process.poll() for name, process in self.running.items()}
            failed = [name for name, status in statuses.items() if status]
            if failed and not self.asked_to_end:
                print(f"launch_ssh.py: the training ended on {failed[0]}.", flush=True)
                return 1
            if None not in statuses.values():
                at_once = self.asked_to_end > 1
                return (ENDED_AT_ONCE if at_once else INTERRUPTED) if failed else 0
            time.sleep(0.1)

    def end(self) -> None:
        """End what is left; nobody saves anything any more."""
        self.ask_to_end()
        self.ask_to_end()
        deadline = time.monotonic() + ENDING_S
        for process in self.running.values():
            try:
                process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def read_arguments() -> tuple[argparse.Namespace, list[str]]:
    """What was typed, and what is left for `train.py`."""
    about, *_ = (__doc__ or "").split("\n")
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--port", type=int, default=0, help="of the first task; the rest follow")
    parser.add_argument("hosts", type=Path, help="a file with a host per line")
    return parser.parse_known_args()


def main() -> int:
    """Start the hosts' programs and wait for their end."""
    asked, words = read_arguments()
    tasks = json.loads((HERE / "tasks.json").read_text(encoding="utf-8"))["tasks"]
    needed = max(task["host"] for task in tasks) + 1
    try:
        hosts = read_hosts(asked.hosts.read_text(encoding="utf-8"))[:needed]
    except (OSError, UnicodeDecodeError) as error:
        print(f"launch_ssh.py: {asked.hosts} cannot be read: {error}.")
        return 2
    if len(hosts) < needed:
        print(f"launch_ssh.py: {needed} hosts are needed, {asked.hosts} names {len(hosts)}.")
        return 2
    addresses = [host.found_address() for host in hosts]
    for host in hosts:
        copy_folder(host)
    connections = Connections()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, connections.ask_to_end)
    try:
        for host, address in zip(hosts, addresses, strict=True):
            connections.start(host, command_for(addresses, address, asked.port, words))
        return connections.follow()
    finally:
        connections.end()


def command_for(addresses: Sequence[str], here: str, port: int, words: Sequence[str]) -> str:
    """What the shell of a host is told."""
    program = [sys.executable, "launch.py", "--hosts", ",".join(addresses), "--here", here]
    options = ["--port", str(port), "--end-with-input", "--", *words]
    return f"cd {shlex.quote(str(HERE))} && exec {shlex.join([*program, *options])}"


if __name__ == "__main__":
    sys.exit(main())
