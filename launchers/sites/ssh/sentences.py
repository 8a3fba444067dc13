"""What went wrong with a host, and what to do about it: one sentence each.  Pure.

Decides from what ssh printed and how it ended, from what hosts said of themselves, and from the
host file.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence

from launchers.fork_servers.addresses import LOOPBACK
from launchers.fork_servers.client import ROOT
from launchers.sites.ssh.hostfile import SshHost
from launchers.sites.ssh.words import REACHED
from ps_allreduce.errors import UserError
from ps_allreduce.record.hosts import HostFacts

MAX_QUOTED = 300

#: Of shells and of `env`.  Source: POSIX, Shell Command Language, 2.8.2.
CANNOT_EXECUTE = (126, 127)

#: What TensorFlow says of itself when all is well.
_CHATTER = re.compile(r"(?:[IW]\d{4} |\d{4}-\d\d-\d\d [\d:.]+: [IW] |WARNING: All log messages)")


def last_heard(said: str) -> str:
    """The last thing of interest that was printed, in brackets."""
    lines = [" ".join(line.split()) for line in said.splitlines()]
    telling = [line for line in lines if line and not _CHATTER.match(line)]
    return f"(last heard: {telling[-1][:MAX_QUOTED].rstrip('.')})" if telling else "(silently)"


def explain_no_start(host: SshHost, status: int, printed: str, log: str) -> str:
    """Why no fork server came up; without a full stop, as there may be more such hosts.

    Args:
        status: that ssh ended with.
        printed: on the host's standard output.
        log: of ssh, and what was complained of on the host.
    """
    reached = REACHED in printed
    reason = _explain_command(host, status, log) if reached else _explain_ssh(host, log)
    return f"{reason} {last_heard(printed.replace(REACHED, '') + log)}"


def _explain_ssh(host: SshHost, said: str) -> str:
    if "IDENTIFICATION HAS CHANGED" in said:
        return (
            f"the key of {host.name} is not the one known here: if the host was set up anew, "
            "remove the old key with 'ssh-keygen -R'"
        )
    if "Host key verification failed" in said:
        return (
            f"the key of {host.name} is not known here: run 'ssh {host.destination}' once by hand, "
            "compare the key and accept it"
        )
    if "Permission denied" in said:
        return (
            f"{host.name} refuses the log-in: see that 'ssh {host.destination}' asks for no "
            "password (ssh-copy-id, ssh-agent, and the user's name in the host file)"
        )
    return f"{host.name} cannot be reached: see that 'ssh {host.destination}' works by hand"


def _explain_command(host: SshHost, status: int, said: str) -> str:
    if "No module named" in said:
        return (
            f"the checkout or its environment on {host.name} lacks a module: put the same checkout "
            f"at {ROOT}, and set it up there"
        )
    if status in CANNOT_EXECUTE or any(_misses_checkout(line) for line in said.splitlines()):
        return (
            f"{host.name} lacks the checkout at {ROOT} or the program that runs it "
            f"({sys.executable}, or the container): put both where they are here"
        )
    return f"no fork server came up on {host.name}: the command there ended with status {status}"


def _misses_checkout(line: str) -> bool:
    """A shell says that there is no such folder; they all word it in their own way."""
    signs = ("No such file", "can't cd", "does not exist", "no such file")
    return str(ROOT) in line and any(sign in line for sign in signs)


def explain_loss(host: str, status: int | None, said: str) -> str:
    """How a line was lost after all had been well.

    Args:
        status: that ssh ended with; None if it still tries.
        said: by ssh and on the host.
    """
    if status is None:
        return f"{host} does not answer any more"
    return f"ssh to {host} ended with status {status} {last_heard(said)}"


def explain_other_source(host: str, path: str) -> str:
    """A host runs another program than the one here."""
    return (
        f"{path} on {host} differs from the one here: all hosts need the same checkout, with the "
        "same changes."
    )


def refuse_misfits(hosts: Sequence[SshHost], facts: Mapping[str, HostFacts], source: str) -> None:
    """See that the private addresses are the hosts' own, and that no machine stands there twice.

    Args:
        facts: by the names of the hosts in the file.
        source: the host file, for messages.

    Raises:
        UserError: it is not so.
    """
    seen: dict[object, str] = {}
    for host in hosts:
        there = [one for one in facts[host.name].interfaces if one.name != LOOPBACK]
        addresses = [one.address for one in there]
        if host.address is not None and host.address not in addresses:
            raise UserError(
                f"{source} gives {host.name} the private address {host.address}, but "
                f"that host has {', '.join(addresses) or 'none'}."
            )
        twin = seen.setdefault((facts[host.name].name, tuple(there)), host.name)
        if there and twin != host.name:
            raise UserError(f"{source}: {twin} and {host.name} are the same machine.")
