"""What is typed for a host: the words of ssh, and the one line for the shell there.  Pure.

Decides that a line to a host is one connection of its own, which asks nothing and forwards nothing.
Keys, aliases, jump hosts and the like are the business of the user's own ssh configuration.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence

from launchers.fork_servers.client import ROOT, UNWANTED, fork_server_environment
from launchers.processes import fork_server_words
from launchers.sites.ssh.hostfile import SshHost

CONNECT_TIMEOUT_S = 10

#: A host that has vanished without a word is noticed after four of them.
ALIVE_INTERVAL_S = 15

#: What the shell prints first, to tell trouble with ssh from trouble with what is started.
REACHED = "ps-allreduce: here is a shell"

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


def ssh_words(host: SshHost, command: str) -> tuple[str, ...]:
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
        environment: of this process; only where modules are found is the same over there.
    """
    path = {name: text for name, text in environment.items() if name == "PYTHONPATH"}
    removed = [word for name in sorted(UNWANTED) for word in ("-u", name)]
    added = [f"{name}={text}" for name, text in fork_server_environment(path).items()]
    command = ["env", *removed, *added, *fork_server_words(container), "--stdio"]
    return f"echo '{REACHED}'; cd {shlex.quote(str(ROOT))} && exec {shlex.join(command)}"
