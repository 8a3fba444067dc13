"""Hosts that are made ready through an `ssh` that runs its command here.

All of them have the same folder, as hosts that share one do; what is installed is a stand-in.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from launchers.__main__ import cli
from launchers.hosts import hosts_command as command_module
from launchers.hosts import set_up as calls
from launchers.hosts.goal import (
    WORK,
    Goal,
    WantedEnvironment,
    Wheelhouse,
    goal_here,
    marked,
    read_wheelhouse,
)
from launchers.hosts.needs import copy_command
from launchers.hosts.set_up import HostOutcome, run_on, set_up_hosts
from launchers.sites.ssh.hostfile import SshHost
from ps_allreduce.errors import HostFault
from tests.real.machines import wait_until
from tests.talk import assert_gone

LOCK = "tensorflow==1\n"

#: Runs its last word here, but for hosts that are known to be in trouble.
FAKE_SSH = """\
#!/bin/sh
for last; do host=$command; command=$last; done
case "$host" in
    mute) exec sleep 60 ;;
    dead) echo "ssh: connect to host dead port 22: No route to host" >&2; exit 255 ;;
esac
echo "Welcome to $host"
exec sh -c "$command"
"""

#: Notes every call.  The Python of its environment only says that it is well.
STAND_IN = """\
echo "$VENV" "$TF" "$PYTHON" "$WHEELHOUSE" "$(ls "$WHEELHOUSE" 2>/dev/null)" >>calls
if [ -e hang ]; then echo $$ >pid; exec sleep 300; fi
if [ -e breaks ]; then echo "it broke for the reason above" >&2; exit 2; fi
mkdir -p "$VENV/bin"
printf '#!/bin/sh\\necho "Environment ready"\\n' >"$VENV/bin/python"
chmod +x "$VENV/bin/python"
cp requirements/cpu.txt "$VENV/ps-allreduce.lock"
"""


@pytest.fixture(autouse=True)
def fake_ssh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "bin" / "ssh"
    program.parent.mkdir()
    program.write_text(FAKE_SSH)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    folder = tmp_path / "checkout"
    for name, text in {
        "Makefile": "all:",
        "ps_allreduce/run.py": "1",
        "ps_allreduce/old.py": "2",
        "requirements/cpu.txt": LOCK,
        "requirements/set_up.sh": STAND_IN,
    }.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


class Hosts:
    """Calls for a checkout, and what is then at its place on the hosts."""

    def __init__(self, checkout: Path, there: Path, logs: Path) -> None:
        self.checkout = checkout
        self.there = there
        self.logs = logs
        self.wheelhouse: Wheelhouse | None = None
        self.shown: list[str] = []

    @property
    def goal(self) -> Goal:
        venv = self.there / ".venv"
        digest = sha256((self.checkout / "requirements/cpu.txt").read_bytes()).hexdigest()
        return Goal(
            root=self.there,
            folder=self.checkout,
            environment=WantedEnvironment(
                python=str(venv / "bin/python"),
                python_path=str(self.there),
                folder=venv,
                build="cpu",
                stamp=f"{digest}  {venv}/ps-allreduce.lock",
                base="/no/such/python",
                command="python3.11",
            ),
            wheelhouse=self.wheelhouse,
            call=os.urandom(4).hex(),
        )

    def __call__(self, *names: str) -> dict[str, HostOutcome]:
        def tell(host: str, doing: str) -> None:
            self.shown.append(f"{host}: {doing}")

        hosts = [SshHost(name=name) for name in names]
        outcomes = set_up_hosts(hosts, self.goal, self.logs, tell)
        return {outcome.host: outcome for outcome in outcomes}

    def one(self) -> str:
        """What becomes of a single host."""
        return self("n9")["n9"].text

    @property
    def calls(self) -> Sequence[str]:
        """Of the script that sets up the environment."""
        path = self.there / "calls"
        return path.read_text().splitlines() if path.exists() else []


@pytest.fixture
def hosts(checkout: Path, tmp_path: Path) -> Hosts:
    logs = tmp_path / "logs"
    logs.mkdir()
    return Hosts(checkout, tmp_path / "over there" / "it's $HOME; `date`", logs)


def test_a_host_gets_what_it_lacks_and_nothing_twice(hosts: Hosts) -> None:
    assert hosts.one() == "ready, checkout copied, environment set up"
    assert (hosts.there / "ps_allreduce/run.py").read_text() == "1"
    assert hosts.calls == [f"{hosts.there}/.venv cpu python3.11  "]
    assert hosts.shown == [
        "n9: looking",
        "n9: copying the checkout",
        "n9: setting up the environment",
    ]
    before = sorted(hosts.there.rglob("*"))
    assert hosts.one() == "ready"
    assert len(hosts.calls) == 1
    assert sorted(hosts.there.rglob("*")) == before


def test_a_host_follows_changes_and_keeps_what_is_its_own(hosts: Hosts) -> None:
    hosts.one()
    (hosts.there / "results").mkdir()
    (hosts.checkout / "ps_allreduce/run.py").write_text("changed")
    (hosts.checkout / "ps_allreduce/old.py").unlink()
    assert hosts.one() == "ready, checkout copied, environment set up"
    assert (hosts.there / "ps_allreduce/run.py").read_text() == "changed"
    assert not (hosts.there / "ps_allreduce/old.py").exists()
    assert (hosts.there / "results").is_dir()


def test_what_was_changed_there_is_put_right(hosts: Hosts) -> None:
    hosts.one()
    (hosts.there / "ps_allreduce/__pycache__").mkdir()
    (hosts.there / "ps_allreduce/__pycache__/run.pyc").touch()
    assert hosts.one() == "ready"
    for name in ("run.py", "added.py"):
        (hosts.there / "ps_allreduce" / name).write_text("changed there")
        assert hosts.one().startswith("ready, checkout copied")
    assert not (hosts.there / "ps_allreduce/added.py").exists()


def test_an_environment_that_is_gone_is_made_again(hosts: Hosts) -> None:
    hosts.one()
    (hosts.there / ".venv/bin/python").unlink()
    assert hosts.one() == "ready, environment set up"


def test_a_folder_that_somebody_else_made_is_left_alone_or_used(hosts: Hosts) -> None:
    hosts.there.mkdir(parents=True)
    (hosts.there / "treasure").touch()
    assert "that 'make hosts' did not put there and that differ" in hosts.one()
    assert [path.name for path in hosts.there.iterdir()] == ["treasure"]
    subprocess.run(["cp", "-r", f"{hosts.checkout}/.", str(hosts.there)], check=True)
    assert hosts.one() == "ready, environment set up"
    (hosts.there / "Makefile").write_text("mine")
    assert "they are left alone" in hosts.one()
    assert (hosts.there / "Makefile").read_text() == "mine"


def test_a_folder_that_cannot_be_made_is_named(hosts: Hosts) -> None:
    hosts.there = Path("/proc/suite")
    assert "does not let you make or write /proc/suite" in hosts.one()


def test_hosts_that_share_a_folder_are_set_up_once(hosts: Hosts) -> None:
    outcomes = hosts("n8", "n9", "n10")
    assert sorted(outcome.text for outcome in outcomes.values()) == [
        *("ready", "ready", "ready, checkout copied, environment set up"),
    ]
    assert len(hosts.calls) == 1
    assert {outcome.text for outcome in hosts("n8", "n9").values()} == {"ready"}


def test_what_fails_in_a_shared_folder_is_tried_once(hosts: Hosts) -> None:
    hosts.one()
    (hosts.there / "breaks").touch()
    (hosts.there / ".venv/bin/python").unlink()
    (hosts.checkout / "Makefile").write_text("new")
    texts = sorted(outcome.text for outcome in hosts("n8", "n9").values())
    assert texts[0].startswith("n9 shares its folder with n8")
    assert texts[1] == (
        "setting up the environment failed on n8 with status 2 (last heard: it broke for the "
        "reason above)."
    )
    assert len(hosts.calls) == 2


def test_this_machines_own_folder_is_left_alone(hosts: Hosts) -> None:
    hosts.there = hosts.checkout
    (hosts.checkout / ".venv").mkdir()
    goal = hosts.goal
    with marked(goal):
        assert sorted(path.name for path in hosts.checkout.glob(".p*")) == [goal.token]
        [outcome] = set_up_hosts([SshHost(name="n9")], goal, hosts.logs, lambda *_: None)
        assert outcome.has_failed
        assert "shares the environment" in outcome.text
        subprocess.run(
            ["sh", "requirements/set_up.sh"],
            env=os.environ | {"VENV": ".venv", "WHEELHOUSE": "/dev/null"},
            cwd=hosts.checkout,
            check=True,
        )
        [outcome] = set_up_hosts([SshHost(name="n9")], goal, hosts.logs, lambda *_: None)
        assert outcome.text == "ready, shares this folder"
    assert [path.name for path in hosts.checkout.glob(".p*")] == []


def test_packages_are_copied_once_and_are_gone_when_installed(hosts: Hosts, tmp_path: Path) -> None:
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    (wheels / "a.whl").write_bytes(os.urandom(3_000_000))
    hosts.wheelhouse = read_wheelhouse(wheels)
    hosts.one()
    assert hosts.calls[0].endswith(f"{WORK}/{hosts.wheelhouse.name} a.whl")
    assert [path.name for path in (hosts.there / WORK).iterdir()] == ["made-here"]
    assert hosts.one() == "ready"


def test_packages_are_not_copied_again_after_a_failure(hosts: Hosts, tmp_path: Path) -> None:
    (hosts.checkout / "requirements/set_up.sh").write_text("exit 1\n")
    (tmp_path / "a.whl").touch()
    hosts.wheelhouse = read_wheelhouse(tmp_path)
    hosts.one()
    (hosts.checkout / "requirements/set_up.sh").write_text(STAND_IN)
    assert hosts.one() == "ready, checkout copied, environment set up"


def test_an_archive_that_was_cut_is_never_used(hosts: Hosts) -> None:
    hosts.one()
    goal = hosts.goal
    (hosts.checkout / "ps_allreduce/run.py").write_text("new")
    packed = subprocess.run(goal.pack_words, capture_output=True, check=True).stdout
    archive, log, stop = hosts.logs / "archive", hosts.logs / "cut", threading.Event()
    archive.write_bytes(packed)
    for length in (0, 20, len(packed) // 2, len(packed) - 9, len(packed) - 1):
        source = ("head", "-c", str(length), str(archive))
        status, _ = run_on(SshHost(name="n9"), copy_command(goal), log, stop, source)
        assert status
        assert (hosts.there / "ps_allreduce/run.py").read_text() == "1"
    assert hosts.one().startswith("ready, checkout copied")


def test_what_an_editor_leaves_here_stops_no_copy_and_a_disk_error_does(hosts: Hosts) -> None:
    (hosts.checkout / "ps_allreduce/.#run.py").symlink_to("/no/such/file")
    assert hosts.one() == "ready, checkout copied, environment set up"
    log, stop = hosts.logs / "log", threading.Event()
    with pytest.raises(HostFault, match=r"n9 is to get cannot be read: 'sh -c \'exit 2\'' ended"):
        run_on(SshHost(name="n9"), "cat", log, stop, ("sh", "-c", "exit 2"))


def test_a_host_in_trouble_stops_nobody(hosts: Hosts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "ANSWER_DEADLINE_S", 1.5)
    outcomes = hosts("dead", "mute", "n9")
    assert not outcomes["n9"].has_failed
    assert outcomes["dead"].text == (
        "dead cannot be reached: see that 'ssh dead' works by hand (last heard: ssh: connect to "
        "host dead port 22: No route to host)."
    )
    assert outcomes["mute"].text.startswith("mute does not answer within 1.5 s: see that 'ssh mu")


@pytest.fixture
def hanging(hosts: Hosts) -> Hosts:
    """Hosts whose set-up never ends."""
    hosts.one()
    (hosts.there / "hang").touch()
    (hosts.there / ".venv/bin/python").unlink()
    return hosts


def test_a_set_up_that_hangs_is_given_up_and_ended(
    hanging: Hosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calls, "SILENCE_S", 1.0)
    assert hanging.one().startswith("n9 was silent for ")
    assert_gone([int((hanging.there / "pid").read_text())])


def test_an_interruption_ends_what_runs_there(hanging: Hosts) -> None:
    main = threading.get_ident()

    def interrupt() -> None:
        pid = hanging.there / "pid"
        wait_until(lambda: pid.exists() and pid.read_text() != "", 30, lambda: "nothing hangs")
        signal.pthread_kill(main, signal.SIGINT)

    waiting = threading.Thread(target=interrupt)
    waiting.start()
    with pytest.raises(KeyboardInterrupt):
        hanging("n9")
    waiting.join()
    assert_gone([int((hanging.there / "pid").read_text())])


# ---- the command


def run(*words: str) -> Result:
    return CliRunner().invoke(cli, ["hosts", *words], standalone_mode=False)


def test_the_command_tells_of_every_host_and_what_is_next(
    hosts: Hosts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command_module, "goal_here", lambda *_: hosts.goal)
    file = tmp_path / "hosts.txt"
    file.write_text("n9\ndead\n")
    words = ("--host-file", str(file), "--results", str(tmp_path / "r"))
    done = run(*words)
    assert done.return_value == 1
    log = tmp_path / "r" / "hosts" / "dead.log"
    trouble = "ssh: connect to host dead port 22: No route to host"
    assert sorted(done.stdout.splitlines()) == [
        f"    log: {log}",
        f"    | {trouble}",
        "1 of 2 hosts failed; mend the faults above. The same command does only what is missing.",
        "dead: FAILED. dead cannot be reached: see that 'ssh dead' works by hand (last heard: "
        f"{trouble}).",
        "n9: ready, checkout copied, environment set up",
    ]
    file.write_text("n9\n")
    done = run(*words)
    assert done.return_value == 0
    assert done.stdout.splitlines() == [
        "n9: ready",
        "1 of 1 hosts are ready. Next, look for trouble:",
        f'make doctor LAUNCHER=ssh ARGS="--host-file {file}"',
    ]


def test_mistakes_are_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "hosts.txt").write_text("n9\n")
    (tmp_path / "r").touch()
    words = ("--host-file", str(tmp_path / "hosts.txt"), "--results", str(tmp_path / "r"))
    assert "name another results folder with --results" in str(run(*words).exception)
    assert "holds no packages" in str(run(*words, "--wheelhouse", str(tmp_path)).exception)


def test_the_environment_here_is_the_model() -> None:
    wanted = goal_here(None, None).environment
    assert wanted.python == sys.executable
    assert goal_here("/opt/python", None).environment.command in ("/opt/python", sys.executable)
    if wanted.folder is not None:
        assert wanted.stamp.endswith(f"  {wanted.folder}/ps-allreduce.lock")
        assert wanted.build in ("cpu", "cuda")
