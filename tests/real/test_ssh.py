"""The launcher `ssh` over real connections, between emulated hosts with an sshd each."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from launchers.run.launcher import HostsLauncher
from launchers.sites.ssh import command_line
from launchers.sites.ssh.ssh_site import SshSite
from ps_allreduce.errors import LaunchError, UserError
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.measurement import Measurement
from ps_allreduce.point.resources import Spread
from ps_allreduce.point.strategies import AllReduce, AnyStrategy, SynchronousServers
from ps_allreduce.record.provenance import ROOT
from ps_allreduce.record.records import Status
from tests.conftest import skip_or_fail
from tests.real.machines import wait_until
from tests.real.points import BRIEF, LONG, launch, point, when_measured
from tests.real.ssh_hosts import PORT, SshHosts, missing_for_ssh, ssh_hosts
from tests.real.users_model import run_one, write_model

pytestmark = [pytest.mark.tensorflow, pytest.mark.slow]

#: On a busy machine.
PATIENCE_S = 240.0


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshHosts]:
    if reason := missing_for_ssh():
        skip_or_fail(reason)
    with ssh_hosts(tmp_path_factory.mktemp("ssh")) as hosts, pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", hosts.search_path)
        yield hosts


@pytest.fixture(scope="module")
def host_file(hosts: SshHosts) -> Path:
    """One host by a name that only ssh knows, one by all that can be said of it."""
    west = hosts.address("west")
    path = hosts.folder / "hosts"
    path.write_text(f"# two\neast\nroot@{west}:{PORT} {west}  # greets\n")
    return path


@pytest.fixture(scope="module")
def launcher(host_file: Path, data_dir: Path) -> Iterator[HostsLauncher]:
    with HostsLauncher(SshSite(host_file), data_dir) as launcher:
        yield launcher


def on_hosts(strategy: type[AnyStrategy], measurement: Measurement = BRIEF) -> Experiment:
    return replace(point(strategy, 2, measurement=measurement), launcher="ssh", spread=Spread())


def test_tasks_on_two_hosts_train_together_by_the_same_fork_servers(
    launcher: HostsLauncher, hosts: SshHosts
) -> None:
    east, west = hosts.address("east"), hosts.address("west")
    servers = []
    for strategy in (AllReduce, SynchronousServers):
        experiment = on_hosts(strategy)
        launcher.check(experiment)
        launcher.prepare(experiment.workload)
        run = launch(launcher, experiment)
        assert run.status is Status.OK, f"{run.reason}\n{run.log[-2000:]}"
        assert run.metrics is not None
        assert run.metrics.examples_per_sec > 0
        assert [(h.name, h.facts.name) for h in run.hosts] == [("east", "east"), (west, "west")]
        assert [host.address for host in run.hosts] == [east, west]
        assert {task.host for task in run.tasks} == {"east", west}
        links = [(link.source, link.target) for link in run.links]
        assert links == [("east", west), (west, "east")]
        servers.append({pid for pid, line in hosts.processes("east").items() if "--stdio" in line})
    assert servers[0] == servers[1] != set()


def test_a_users_model_is_sent_to_hosts_that_do_not_have_it(
    host_file: Path, hosts: SshHosts, tmp_path: Path
) -> None:
    model = write_model(tmp_path / "mine")
    words = ("--strategy", "allreduce", "--launcher", "ssh", "--host-file", str(host_file))
    line = run_one(model, hosts.own, *words)
    assert (line["status"], line["reason"]) == ("ok", "")
    # Nothing is left where the user's files are.
    assert {path.name for path in (tmp_path / "mine").iterdir()} == {"mine.py", "blocks.py"}
    folder = hosts.own / "taken_home"  # the other hosts do not have it
    export = ("-m", "experiments", "export", "--results", str(hosts.own), "--into", str(folder))
    train = (str(folder / "launch_ssh.sh"), str(host_file), "--steps-per-epoch", "3")
    run_in(ROOT, sys.executable, *export, "--launcher", "ssh")
    told = run_in(Path("/"), *train)
    assert "step      3  epoch 1" in told
    assert f"Done: {folder}/final.keras" in told


def run_in(folder: Path, *words: str) -> str:
    done = subprocess.run(
        words, cwd=folder, capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_host_that_fails_is_named_and_used_again(
    host_file: Path, data_dir: Path, hosts: SshHosts
) -> None:
    with HostsLauncher(SshSite(host_file), data_dir) as launcher:
        launcher.prepare(on_hosts(SynchronousServers).workload)
        experiment = on_hosts(SynchronousServers, LONG)
        run = launch(launcher, experiment, when_measured(lambda: hosts.kill("east")))
        assert run.status is Status.INTERRUPTED
        assert "the fork server on east, from which its tasks are forked, ended" in run.reason
        assert "ssh to east ended with status 255 (last heard: Connection to" in run.reason

        again = launch(launcher, on_hosts(AllReduce))
        assert again.status is Status.INTERRUPTED
        assert "east cannot be reached" in again.reason

        hosts.start_sshd("east")
        again = launch(launcher, on_hosts(AllReduce))
        assert again.reason == ""


def test_a_host_that_falls_silent_is_named_and_ends_by_itself(
    host_file: Path, data_dir: Path, hosts: SshHosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(command_line.OPTIONS, "ServerAliveInterval", "2")
    before = {name: hosts.processes(name) for name in ("east", "west")}
    with HostsLauncher(SshSite(host_file), data_dir) as launcher:
        unplug = when_measured(lambda: hosts.set_link("east", "down"))
        try:
            experiment = on_hosts(AllReduce, LONG)
            launcher.prepare(experiment.workload)
            run = launch(launcher, experiment, unplug)
        finally:
            hosts.set_link("east", "up")
        assert run.status is Status.INTERRUPTED
        assert "ssh to east ended with status 255 (last heard: Timeout" in run.reason
    for name, processes in before.items():
        hosts.wait_until_gone(name, processes)


def test_nothing_survives_a_launcher_that_is_killed(
    host_file: Path, tmp_path: Path, hosts: SshHosts
) -> None:
    before = {name: hosts.processes(name) for name in ("east", "west")}
    scratch = hosts.folder / "tmp"
    folders = set(scratch.iterdir())
    suite = (sys.executable, "-m", "experiments", "run-one", "--strategy", "allreduce")
    options = ("--num-workers", "2", "--warmup-s", "20", "--launcher", "ssh")
    with (tmp_path / "said").open("wb") as said:
        launcher = subprocess.Popen(
            [*suite, *options, "--host-file", str(host_file), "--results", str(tmp_path)],
            cwd=ROOT,
            stdout=said,
            stderr=said,
            env=os.environ | {"TMPDIR": str(tmp_path)},  # its own files stay, as it is killed
        )

    def tasks() -> int:
        return len(list(scratch.glob("*/run-*/worker-*.log")))

    try:
        wait_until(lambda: tasks() == 2, PATIENCE_S, (tmp_path / "said").read_text)
        time.sleep(3)  # well into the warm-up
        assert tasks() == 2
        assert set(scratch.iterdir()) > folders
    finally:
        launcher.send_signal(signal.SIGKILL)
        launcher.wait()
    for name, processes in before.items():
        hosts.wait_until_gone(name, processes)
    assert set(scratch.iterdir()) == folders


def refusal(path: Path, kind: type[Exception], *lines: str) -> str:
    """What is said of a host file whose hosts cannot be used, within seconds and in one line."""
    path.write_text("\n".join(lines))
    with SshSite(path) as site, pytest.raises(kind) as caught:
        site.cores()
    message = str(caught.value)
    assert len(message.splitlines()) == 1
    return message


@pytest.mark.parametrize(
    ("host", "told", "quoted"),
    [
        ("stranger", "stranger refuses the log-in: see that 'ssh stranger'", "Permission denied"),
        ("nobody@east", "'ssh nobody@east' asks for no password", "Permission denied"),
        ("unheard", "the key of unheard is not known here", "Host key verification failed"),
        ("swapped", "the key of swapped is not the one known here", "verification failed"),
        ("nowhere.invalid", "nowhere.invalid cannot be reached", "Could not resolve hostname"),
        ("east:2223", "'ssh -p 2223 east' works by hand", "Connection refused"),
        # Which of the two is missed first depends on where Python's environment lies.
        ("bare", f"checkout at {ROOT}", "No "),
    ],
)
def test_a_host_that_cannot_be_used_is_one_sentence(
    hosts: SshHosts, tmp_path: Path, host: str, told: str, quoted: str
) -> None:
    message = refusal(tmp_path / "hosts", LaunchError, host)
    assert told in message
    assert quoted in message.partition("(last heard: ")[2]


def test_all_hosts_that_cannot_be_used_are_named(hosts: SshHosts, tmp_path: Path) -> None:
    message = refusal(tmp_path / "hosts", LaunchError, "stranger", "unheard")
    assert "stranger refuses" in message
    assert "the key of unheard" in message


def test_another_checkout_and_a_machine_that_stands_there_twice_are_refused(
    hosts: SshHosts, tmp_path: Path
) -> None:
    message = refusal(tmp_path / "hosts", UserError, "stale")
    assert "ps_allreduce on stale is not the program that this command began with" in message
    message = refusal(tmp_path / "hosts", UserError, "east", hosts.address("east"))
    assert message.endswith(f"hosts: east and {hosts.address('east')} are the same machine.")
