"""The command of ssh, the line for the shell at its other end, and what both may answer.  Pure.

Decides that a line to a host is one connection of its own, which asks nothing and forwards nothing,
and what to do about one that fails.  Keys, aliases and jump hosts are the business of the user's
own ssh configuration.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping, Sequence

from launchers.processes import UNWANTED, fork_server_environment, fork_server_words
from launchers.sites.ssh.hostfile import SshHost
from ps_allreduce.record.provenance import ROOT, computing
from ps_allreduce.tf_texts import CHATTER

CONNECT_TIMEOUT_S = 10

#: A host that has vanished without a word is noticed after four of them.
ALIVE_INTERVAL_S = 15

#: What the shell prints first, to tell trouble with ssh from trouble with what is started.
REACHED = "ps-allreduce: here is a shell"

MAX_QUOTED = 300

#: Of shells and of `env`.  Source: POSIX, Shell Command Language, 2.8.2.
CANNOT_EXECUTE = (126, 127)

#: Each shell says in its own words, and in the user's language, that there is no such folder: the
#: status tells it, which is that of a program that is missing.
_IN_FOLDER = 'cd "$1" || exit 127; shift; exec "$@"'

#: Source: ssh_config(5).
OPTIONS = {
    "BatchMode": "yes",
    "ConnectTimeout": str(CONNECT_TIMEOUT_S),
    "ServerAliveInterval": str(ALIVE_INTERVAL_S),
    "ServerAliveCountMax": "3",
    # A connection that is shared with others would outlive ours, and not end with it.
    "ControlMaster": "no",
    "ControlPath": "none",
    # What a user has set up for sessions at a terminal.
    "RemoteCommand": "none",
    "ClearAllForwardings": "yes",
}


def ssh_command(host: SshHost, command: str) -> tuple[str, ...]:
    """The words that run a command on a host, with its standard streams at this end.

    Args:
        command: for the shell there.
    """
    options = [word for name, value in OPTIONS.items() for word in ("-o", f"{name}={value}")]
    port = () if host.port is None else ("-p", str(host.port))
    user = () if host.user is None else ("-l", host.user)
    return ("ssh", "-T", "-a", "-x", *options, *port, *user, "--", host.name, command)


def remote_command(container: Sequence[str], environment: Mapping[str, str]) -> str:
    """The line that starts a fork server: in a folder like ours, by a Python at the same path.

    Args:
        container: words before the container's own Python; none: the Python of this process.
        environment: of this process; where modules are found is the same over there, and what
            changes computation.
    """
    same = {name: text for name, text in environment.items() if name == "PYTHONPATH"}
    same |= computing(environment)
    removed = [word for name in sorted(UNWANTED) for word in ("-u", name)]
    added = [f"{name}={text}" for name, text in fork_server_environment(same).items()]
    command = ["env", *removed, *added, *fork_server_words(container), "--stdio"]
    return (
        f"echo '{REACHED}'; exec {shlex.join(['sh', '-c', _IN_FOLDER, 'sh', str(ROOT), *command])}"
    )


def last_heard(said: str) -> str:
    """The last line that was printed and is no chatter, in brackets."""
    lines = [" ".join(line.split()) for line in said.splitlines()]
    lines = [line for line in lines if line and not CHATTER.match(line)]
    return f"(last heard: {lines[-1][:MAX_QUOTED].rstrip('.')})" if lines else "(silently)"


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
    by_hand = f"'ssh {host.destination}'"
    reasons = {
        "IDENTIFICATION HAS CHANGED": f"the key of {host.name} is not the one known here: if the "
        "host was set up anew, remove the old key with 'ssh-keygen -R'",
        "Host key verification failed": f"the key of {host.name} is not known here: run {by_hand} "
        "once by hand, compare the key and accept it",
        "Permission denied": f"{host.name} refuses the log-in: see that {by_hand} asks for no "
        "password (ssh-copy-id, ssh-agent, and the user's name in the host file)",
        "": f"{host.name} cannot be reached: see that {by_hand} works by hand",
    }
    return next(reason for sign, reason in reasons.items() if sign in said)


def _explain_command(host: SshHost, status: int, said: str) -> str:
    if "No module named" in said:
        return (
            f"the checkout or its environment on {host.name} lacks a module: "
            f"'make hosts' puts the same checkout at {ROOT}, and sets it up there"
        )
    if status in CANNOT_EXECUTE:
        return (
            f"{host.name} lacks the checkout at {ROOT} or the program that runs it "
            f"({sys.executable}, or the container): 'make hosts' puts both where they are here"
        )
    return f"no fork server came up on {host.name}: the command there ended with status {status}"


def explain_loss(host: str, status: int | None, said: str) -> str:
    """How a line was lost after all had been well.

    Args:
        status: that ssh ended with; None if it still tries.
        said: by ssh and on the host.
    """
    if status is None:
        return f"{host} does not answer any more"
    return f"ssh to {host} ended with status {status} {last_heard(said)}"
