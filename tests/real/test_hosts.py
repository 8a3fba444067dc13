"""`make hosts` over real connections, between emulated hosts with a folder of their own each.

The checkout is a copy of this one, in which making an environment takes no minute: the new one
borrows the packages of the one that runs these tests.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import pytest

from launchers.hosts.goal import PARTS
from ps_allreduce.environment import LOCK_STAMP
from ps_allreduce.record.provenance import ROOT
from tests.conftest import skip_or_fail
from tests.real.machines import wait_until
from tests.real.ssh_hosts import SshHosts, missing_for_ssh, ssh_hosts

pytestmark = [pytest.mark.tensorflow, pytest.mark.slow]

#: On a busy machine.
PATIENCE_S = 120.0

#: In the place of pip: the packages that are there already.
SET_UP = f"""\
set -e
if [ -e requirements/hangs ]; then echo working; exec sleep 300; fi
"$PYTHON" -m venv --without-pip "$VENV"
for packages in "$VENV"/lib/python3.*/site-packages; do
    printf '%s\\n' '{sysconfig.get_path("purelib")}' >"$packages/borrowed.pth"
done
{{ echo "# $TF build, Python 3"; cat "requirements/$TF.txt"; }} >"$VENV/{LOCK_STAMP}"
"""

#: What the launcher does first on every host.
ASK = """\
import sys
from pathlib import Path
from launchers.sites.ssh.ssh_site import SshSite
with SshSite(Path(sys.argv[1])) as site:
    print(*site.cores())
"""


class Office:
    """The machine on which `make hosts` is typed, with its checkout."""

    def __init__(self, checkout: Path, hosts: SshHosts) -> None:
        self.checkout = checkout
        self.hosts = hosts
        self._python = str(checkout / ".venv/bin/python")
        for part in PARTS:
            copy = shutil.copytree if (ROOT / part).is_dir() else shutil.copy
            copy(ROOT / part, checkout / part)
        (checkout / "requirements/set_up.sh").write_text(SET_UP)
        self.set_up()

    def set_up(self) -> None:
        base = Path(sys.base_prefix) / "bin" / f"python3.{sys.version_info.minor}"
        subprocess.run(
            ["sh", "requirements/set_up.sh"],
            cwd=self.checkout,
            env=os.environ | {"PYTHON": str(base), "VENV": ".venv", "TF": "cpu"},
            check=True,
        )

    def start(self, *words: str) -> subprocess.Popen[str]:
        """Start Python in the checkout."""
        left_out = ("PYTHONPATH", "VIRTUAL_ENV")
        environment = {name: text for name, text in os.environ.items() if name not in left_out}
        return subprocess.Popen(
            [self._python, *words],
            cwd=self.checkout,
            env=environment | {"PATH": self.hosts.search_path},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def make_hosts(self, *names: str) -> subprocess.Popen[str]:
        """Start the command for some hosts."""
        (self.checkout / "hosts.txt").write_text("\n".join(names))
        return self.start("-m", "launchers", "hosts", "--host-file", "hosts.txt")

    def told(self, *names: str) -> tuple[int, dict[str, str]]:
        """Exit status of the command, and what it says of each host."""
        process = self.make_hosts(*names)
        said, _ = process.communicate(timeout=PATIENCE_S)
        lines = (line.split(": ", 1) for line in said.splitlines() if ": " in line)
        return process.returncode, {host: text for host, text in lines if host in names}


@pytest.fixture(scope="module")
def office(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Office]:
    if reason := missing_for_ssh():
        skip_or_fail(reason)
    private = tmp_path_factory.mktemp("private")
    checkout = private / "suite"
    checkout.mkdir()
    with ssh_hosts(tmp_path_factory.mktemp("ssh"), private) as hosts:
        yield Office(checkout, hosts)


def test_hosts_become_ready_once_and_the_launcher_can_use_them(office: Office) -> None:
    west = office.hosts.address("west")
    status, told = office.told("east", west, "stranger", "stale")
    new = "ready, checkout copied, environment set up"
    refusal = told.pop("stranger")
    assert (status, told) == (1, {"east": new, west: "ready, shares this folder", "stale": new})
    assert refusal.startswith("FAILED. stranger refuses the log-in: see that 'ssh stranger' asks")
    assert "Permission denied" in (office.checkout / "results/hosts/stranger.log").read_text()

    ready = {"east": "ready", west: "ready, shares this folder", "stale": "ready"}
    assert office.told("east", west, "stale") == (0, ready)

    (office.checkout / "one.txt").write_text("east")
    site = office.start("-c", ASK, "one.txt")
    assert site.communicate(timeout=PATIENCE_S)[0].splitlines()[-1] == "east"

    with (office.checkout / "ps_allreduce/bounds.py").open("a") as changed:
        changed.write("# new\n")
    site = office.start("-c", ASK, "one.txt")
    said = site.communicate(timeout=PATIENCE_S)[0]
    assert "is not the program that this command began with" in said
    assert office.told("east", west, "stale") == (0, told)
    assert office.told("east", west, "stale") == (0, ready)


@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGINT, 130), (signal.SIGKILL, -signal.SIGKILL)]
)
def test_nothing_goes_on_after_an_interruption(
    office: Office, number: signal.Signals, status: int
) -> None:
    hangs = office.checkout / "requirements/hangs"
    hangs.write_text(number.name)
    try:
        before = {name: office.hosts.processes(name) for name in ("east", "stale")}
        process = office.make_hosts(*before)
        wait_until(
            lambda: all(office.hosts.runs(name, "sleep 300") for name in before),
            PATIENCE_S,
            lambda: f"east runs {office.hosts.processes('east')}",
        )
        process.send_signal(number)
        said, _ = process.communicate(timeout=30)
        assert process.returncode == status
        if number == signal.SIGINT:
            assert said.startswith("Interrupted: nothing goes on on the hosts. The same command")
            assert len(said.splitlines()) <= 2  # click adds an empty one
        for name, processes in before.items():
            office.hosts.wait_until_gone(name, processes)
    finally:
        hangs.unlink()
    assert office.told(*before)[0] == 0
