"""Emulated hosts with a real sshd each, and an `ssh` that starts from one of them.

Decides how sshd and ssh are configured, and that nothing of it outlives the context.  The hosts
have a network and a host name of their own; files and processors are this machine's, but for one
folder, for what `bare` and `stale` have instead of the checkout, and for a folder of which all but
`west` may have one of their own.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from launchers.sites.emulated.held_network import EmulatedHost, hold_network
from ps_allreduce.point.network import EmulatedNetwork
from ps_allreduce.record.provenance import ROOT
from tests.real.machines import SEARCH_PATH, Machines, missing_for, wait_until

#: Where ssh is typed, two hosts that are as they should be, and two that are not.
NAMES = ("office", "east", "west", "bare", "stale")

PORT = 2222

#: A file of the measured program that `stale` has in another version.
CHANGED = ROOT / "ps_allreduce" / "bounds.py"

DEADLINE_S = 30.0

SSHD = """\
Port {port}
ListenAddress {address}
HostKey {folder}/host_key
AuthorizedKeysFile {folder}/user_key.pub
PidFile none
UsePAM no
StrictModes no
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin prohibit-password
SetEnv TMPDIR={folder}/tmp
"""

#: A shell that greets, and leaves a line unfinished before it does what it was asked for.
GREETING = 'ForceCommand echo Welcome; printf title; exec sh -c "$SSH_ORIGINAL_COMMAND"\n'

#: The user's own.  Hosts are known by name here and nowhere else; the last three are all `east`.
SSH_CONFIG = """\
Host east
    HostName {east}
Host bare
    HostName {bare}
Host stale
    HostName {stale}
Host stranger
    HostName {east}
    IdentityFile {folder}/other_key
Host unheard
    HostName {east}
    UserKnownHostsFile /dev/null
Host swapped
    HostName {east}
    UserKnownHostsFile {folder}/wrong_hosts
Host *
    Port {port}
    User root
    IdentitiesOnly yes
    IdentityAgent none
    UserKnownHostsFile {folder}/known_hosts
    GlobalKnownHostsFile /dev/null
    StrictHostKeyChecking ask
    LocalForward 127.0.0.1:9 127.0.0.1:9
    RequestTTY yes
Host * !stranger
    IdentityFile {folder}/user_key
"""

#: sshd needs a folder in /run.
BECOME_HOST = """\
set -e
mount -t tmpfs run /run
mkdir /run/sshd
mount -t tmpfs own "$5"
case "$1" in
    bare) mount -t tmpfs none "$2" ;;
    stale) mount --bind "$4" "$3" ;;
esac
if [ -n "$6" ] && [ "$1" != west ]; then mount -t tmpfs none "$6"; fi
shift 6
exec "$@"
"""

SSH = """\
#!/bin/sh
exec {enter} {ssh} -F {folder}/config "$@"
"""


def missing_for_ssh() -> str:
    """What this machine lacks, in words; empty if nothing."""
    return missing_for("sshd", ("ssh", "sshd", "ssh-keygen"))


class SshHosts(Machines):
    """Hosts that are up.

    Attributes:
        folder: of keys, configurations and logs, and for all temporary files of the hosts.
        own: a folder that every host, and whoever starts them, has for itself.
        search_path: PATH by which the launcher finds the `ssh` that starts from `office`.
        private: a folder that is empty at first on all hosts but `west`; None: they share all.
    """

    def __init__(self, folder: Path, hosts: Sequence[EmulatedHost], private: Path | None) -> None:
        super().__init__(hosts)
        self.folder, self.own, self.private = folder, folder / "own", private
        self.search_path = f"{folder / 'bin'}:{SEARCH_PATH}"

    def address(self, name: str) -> str:
        return self.hosts[name].address

    def start_sshd(self, name: str) -> None:
        """Start the sshd of a host, and wait until it listens."""
        config = self.folder / f"{name}.conf"
        text = SSHD.format(port=PORT, address=self.address(name), folder=self.folder)
        config.write_text(text + (GREETING if name == "west" else ""))
        log = self.folder / f"{name}.log"
        log.unlink(missing_ok=True)
        command = (
            *self.hosts[name].enter,
            *("setpriv", "--pdeathsig=KILL", "--", "unshare", "--mount"),
            *("sh", "-c", BECOME_HOST, "sh", name, str(ROOT), str(CHANGED)),
            *(str(self.folder / CHANGED.name), str(self.own), str(self.private or "")),
            *(_program("sshd"), "-D", "-e", "-f", str(config)),
        )
        self.start(command, log, cwd="/")
        wait_until(lambda: "listening" in log.read_text(), DEADLINE_S, log.read_text)

    def wait_until_gone(self, name: str, but: Collection[int]) -> None:
        """Wait until a host runs nothing but sshd and what ran before.

        Raises:
            LaunchError: it still does after some time.
        """

        def left() -> dict[int, str]:
            return {
                pid: line
                for pid, line in self.processes(name).items()
                if pid not in but and "sshd" not in line
            }

        wait_until(lambda: not left(), DEADLINE_S, lambda: f"{name} runs {left()}")


@contextmanager
def ssh_hosts(folder: Path, private: Path | None = None) -> Iterator[SshHosts]:
    """The hosts for as long as the context lasts.

    Args:
        private: a folder that all but `west` have for themselves.

    Raises:
        UserError: this machine allows no such network.
        LaunchError: a host did not come up.
    """
    network = EmulatedNetwork(num_hosts=len(NAMES), bits_per_s=None)
    with hold_network(network, NAMES) as held:
        hosts = SshHosts(folder, held.hosts, private)
        _write_files(hosts)
        try:
            for name in NAMES[1:]:
                hosts.start_sshd(name)
            yield hosts
        finally:
            hosts.end()


def _write_files(hosts: SshHosts) -> None:
    folder, addresses = hosts.folder, {name: hosts.address(name) for name in hosts.hosts}
    (folder / "tmp").mkdir()
    hosts.own.mkdir()
    for name in ("host_key", "user_key", "other_key"):
        words = ("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name))
        subprocess.run(words, check=True, stdin=subprocess.DEVNULL, timeout=DEADLINE_S)
    for target, key in (("known_hosts", "host_key"), ("wrong_hosts", "other_key")):
        public = " ".join((folder / f"{key}.pub").read_text().split()[:2])
        lines = [f"[{address}]:{PORT} {public}\n" for address in addresses.values()]
        (folder / target).write_text("".join(lines))
    (folder / "config").write_text(SSH_CONFIG.format(port=PORT, folder=folder, **addresses))
    (folder / CHANGED.name).write_text(CHANGED.read_text() + "# changed\n")
    program = folder / "bin" / "ssh"
    program.parent.mkdir()
    enter = " ".join(hosts.hosts["office"].enter)
    program.write_text(SSH.format(enter=enter, ssh=_program("ssh"), folder=folder))
    program.chmod(0o755)


def _program(name: str) -> str:
    """sshd must be called by its whole path."""
    path = shutil.which(name, path=SEARCH_PATH)
    assert path is not None
    return path
