"""Host files, and lines to fork servers through an `ssh` that runs its command here."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from launchers import make_launcher
from launchers.fork_servers.client import ForkServerClient
from launchers.settings import LauncherSettings
from launchers.sites.ssh import ssh_site as site_module
from launchers.sites.ssh.command_line import (
    CANNOT_EXECUTE,
    REACHED,
    explain_loss,
    explain_no_start,
    last_heard,
    remote_command,
    ssh_command,
)
from launchers.sites.ssh.hostfile import SshHost, parse_host_file, refuse_misfits
from launchers.sites.ssh.ssh_site import SshForkServer, SshSite, read_host_file
from ps_allreduce.errors import LaunchError, UserError
from ps_allreduce.fork_server.messages import AskTime, TimeTold
from ps_allreduce.record.hosts import HostFacts, Interface
from ps_allreduce.record.provenance import ROOT
from tests.conftest import skip_or_fail
from tests.fakes import make_facts
from tests.pretend import fake_server
from tests.talk import assert_gone

# ---- the host file


def test_hosts_are_read_in_their_order() -> None:
    text = (
        "# my cloud\r\n"
        "\n"
        "ubuntu@n10.example.org:2222 10.0.0.10  # the first\n"
        "n9\n"
        "\t192.0.2.8   10.0.0.8\n"
        "me@corp.example@n8\n"
    )
    assert parse_host_file(text, "hosts") == (
        SshHost(name="n10.example.org", user="ubuntu", port=2222, address="10.0.0.10"),
        SshHost(name="n9"),
        SshHost(name="192.0.2.8", address="10.0.0.8"),
        SshHost(name="n8", user="me@corp.example"),
    )


def test_hosts_that_are_marked_for_servers_come_last(tmp_path: Path) -> None:
    (tmp_path / "hosts").write_text("small 10.0.0.1 ps\nn10\ntiny ps  # cheaper\nps\n")
    marked = {host.name: host.for_servers for host in read_host_file(tmp_path / "hosts")}
    assert marked == {"small": True, "n10": False, "tiny": True, "ps": False}
    site = SshSite(tmp_path / "hosts")
    assert (site.worker_hosts, site.ps_hosts) == (("n10", "ps"), ("small", "tiny"))
    with pytest.raises(UserError, match="marks all hosts 'ps', so none is left for workers"):
        parse_host_file("small ps\n", "hosts")


@pytest.mark.parametrize("text", ["", "# nobody\n\n"])
def test_a_file_without_hosts_is_refused(text: str) -> None:
    with pytest.raises(UserError, match=r"^hosts names no host; write one per line, as 'ubuntu@"):
        parse_host_file(text, "hosts")


@given(st.text(alphabet=st.sampled_from("an9@:.-#\n 10[]\u00fc'")) | st.text())
def test_any_text_is_hosts_or_refused_in_one_line(text: str) -> None:
    try:
        hosts = parse_host_file(text, "hosts")
    except UserError as error:
        message = str(error)
    else:
        assert len({host.name for host in hosts}) == len(hosts)
        assert not any(host.name.startswith("-") for host in hosts)
        message = "."
    assert message.endswith(".")
    assert len(message.splitlines()) == 1


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"the host file .*/none cannot be read \(No such file"):
        read_host_file(tmp_path / "none")
    os.mkfifo(tmp_path / "pipe")
    for endless in (tmp_path / "pipe", Path("/dev/zero")):
        with pytest.raises(UserError, match="is no file but a folder, a pipe or a device"):
            read_host_file(endless)
    (tmp_path / "hosts").write_bytes(b"\xff\xfen\x009\x00")
    with pytest.raises(UserError, match="is no text"):
        read_host_file(tmp_path / "hosts")
    (tmp_path / "hosts").write_bytes(b"\xef\xbb\xbfn9\n")
    assert read_host_file(tmp_path / "hosts") == (SshHost(name="n9"),)


# ---- what is typed


def test_ssh_asks_nothing_and_knows_where_options_end() -> None:
    host = SshHost(name="n9", user="ubuntu", port=2222)
    words = ssh_command(host, "cd 'a b' && true")
    assert words[0] == "ssh"
    assert {"BatchMode=yes", "ControlPath=none", "ServerAliveInterval=15"} < set(words)
    assert words[-7:] == ("-p", "2222", "-l", "ubuntu", "--", "n9", "cd 'a b' && true")
    assert {"-p", "-l"}.isdisjoint(ssh_command(SshHost(name="n9"), "true"))
    assert host.destination == "-p 2222 ubuntu@n9"


def test_the_real_ssh_understands_all_options() -> None:
    if shutil.which("ssh") is None:
        skip_or_fail("ssh is not installed")
    program, *rest, _ = ssh_command(SshHost(name="n9", user="me", port=2222), "true")
    done = subprocess.run(
        [program, "-G", "-F", "none", *rest],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    settings = set(done.stdout.splitlines())
    assert {"hostname n9", "user me", "port 2222", "batchmode yes"} < settings
    assert {"requesttty false", "forwardagent no", "forwardx11 no"} < settings
    assert {"serveraliveinterval 15", "connecttimeout 10", "controlmaster false"} < settings


@pytest.mark.parametrize("shell", ["sh", "bash"])
def test_the_shell_over_there_sees_every_word_as_it_was_meant(
    shell: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / 'it\'s $HOME; `date` "x"'
    folder.mkdir()
    program = folder / "python3"
    program.write_text(
        '#!/bin/sh\npwd\nprintf "%s\\n" "$0" "$@" "$PYTHONPATH" '
        '"$http_proxy" "$NVIDIA_TF32_OVERRIDE"\n'
    )
    program.chmod(0o755)
    monkeypatch.setattr("launchers.sites.ssh.command_line.ROOT", folder)
    monkeypatch.setattr("launchers.processes.ROOT", folder)
    monkeypatch.setattr("launchers.processes.FORK_SERVER", (str(program), "-m", "module"))
    mine = {"PYTHONPATH": "/my modules", "SECRET": "x", "NVIDIA_TF32_OVERRIDE": "0"}
    command = remote_command((), mine)
    assert "SECRET" not in command
    done = subprocess.run(
        [shell, "-c", command],
        env={"PATH": os.environ["PATH"], "http_proxy": "proxy"},
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    assert done.stdout.splitlines() == [
        REACHED,
        str(folder),
        *(str(program), "-m", "module", "--stdio"),
        f"{folder}:/my modules",
        "",
        "0",
    ]
    folder.rename(tmp_path / "elsewhere")
    without = subprocess.run([shell, "-c", command], capture_output=True, check=False, timeout=30)
    assert without.returncode in CANNOT_EXECUTE


def test_a_container_runs_its_own_python() -> None:
    command = remote_command(("apptainer", "exec", "my image.sif"), {})
    assert command.endswith(
        " apptainer exec 'my image.sif' python3 -m ps_allreduce.fork_server.server --stdio"
    )


# ---- what went wrong

HOST = SshHost(name="n9", user="me")


@pytest.mark.parametrize(
    ("status", "log", "told"),
    [
        (127, f"sh: Zeile 1: cd: {ROOT}: Datei oder Verzeichnis nicht gefunden", "lacks the check"),
        (127, f"env: '{sys.executable}': No such file or directory", sys.executable),
        (126, f"env: '{sys.executable}': Permission denied", sys.executable),
        (1, "ModuleNotFoundError: No module named 'tensorflow'", "lacks a module"),
        (1, "ImportError: libx.so.9: cannot open: No such file", "command there ended with status"),
        (255, "FATAL: could not open image x.sif", "the command there ended with status 255"),
    ],
)
def test_trouble_on_the_host_says_what_to_do(status: int, log: str, told: str) -> None:
    message = explain_no_start(HOST, status, f"Welcome\n{REACHED}\n", f"Banner\n{log}\n")
    assert told in message
    assert message.endswith(f"(last heard: {log})")


@pytest.mark.parametrize(
    ("printed", "log", "told"),
    [
        ("", "me@n9: Permission denied (publickey).\r\n", "see that 'ssh me@n9' asks for no pass"),
        ("", "Host key verification failed.", "run 'ssh me@n9' once by hand"),
        ("", "ssh: connect to host n9 port 22: Connection timed out", "n9 cannot be reached"),
        ("This account is currently not available.\n", "", "(last heard: This account is curr"),
        ("", "", "works by hand (silently)"),
    ],
)
def test_trouble_on_the_way_says_what_to_do(printed: str, log: str, told: str) -> None:
    assert told in explain_no_start(HOST, 255, printed, log)


def test_what_tensorflow_says_when_all_is_well_is_not_quoted() -> None:
    log = "Traceback\nMemoryError\nI0000 00:00:1795 port.cc:153] oneDNN\n2026-01-01 0:1.2: I x.cc\n"
    assert last_heard(log) == "(last heard: MemoryError)"
    assert (
        explain_loss("n9", 255, log.partition("Error\n")[2])
        == "ssh to n9 ended with status 255 (silently)"
    )


def facts(name: str, *addresses: str) -> HostFacts:
    interfaces = [Interface(name="lo", address="127.0.0.1", prefix_length=8)]
    interfaces += [Interface(name="e", address=one, prefix_length=24) for one in addresses]
    return make_facts(name, interfaces=tuple(interfaces))


def test_hosts_are_what_the_file_says() -> None:
    hosts = (SshHost(name="a", address="10.0.0.1"), SshHost(name="b"))
    docker = "172.17.0.1"  # the same everywhere
    there = {"a": facts("ip-1", docker, "10.0.0.1"), "b": facts("ip-1", docker, "10.0.0.2")}
    refuse_misfits(hosts, there, "hosts")
    refuse_misfits(hosts[1:], {"b": facts("offline")}, "hosts")
    with pytest.raises(UserError, match=r"hosts: a and b are the same machine"):
        refuse_misfits(hosts, {"a": there["a"], "b": there["a"]}, "hosts")
    with pytest.raises(UserError, match=r"a the private address 10.0.0.1, but that host has 10.9"):
        refuse_misfits(hosts, {"a": facts("x", "10.9.0.1"), "b": there["b"]}, "hosts")


# ---- lines

#: Runs its last word here.
FAKE_SSH = '#!/bin/sh\nfor last; do :; done\nexec sh -c "$last"\n'


def greeting_server(*options: str) -> str:
    """A line that greets, and becomes a fork server with made-up jobs on its standard input."""
    words = shlex.join(fake_server(*options, "--socket", "0"))
    return (
        "echo 'Welcome {}'; printf 'title'; echo complaint >&2; "
        f"cd {shlex.quote(str(ROOT))} && exec {words}"
    )


@pytest.fixture
def fake_ssh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "bin" / "ssh"
    program.parent.mkdir()
    program.write_text(FAKE_SSH)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


@pytest.fixture
def server(fake_ssh: None) -> Iterator[SshForkServer]:
    server = SshForkServer(HOST, greeting_server())
    yield server
    server.close()


def test_a_greeting_is_passed_over(server: SshForkServer) -> None:
    client = server.client()
    assert client.ready.facts.name == socket.gethostname()
    assert client.greeting == b"Welcome {}\ntitle"
    assert client.answer(AskTime(), TimeTold).time > 1e9


def test_a_server_is_used_until_it_is_lost(server: SshForkServer) -> None:
    client = server.client()
    assert server.client() is client
    assert server.last_words() == ""
    os.kill(client.ready.pid, signal.SIGKILL)
    with pytest.raises(LaunchError, match=r"the fork server on n9, .* ended"):
        client.receive(10)
    assert server.last_words() == "ssh to n9 ended with status 137 (last heard: complaint)"
    again = server.client()
    assert again is not client
    assert again.ready.pid != client.ready.pid
    assert server.last_words() == ""


def test_a_server_that_does_not_answer_is_named(
    server: SshForkServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("launchers.fork_servers.client.ANSWER_DEADLINE_S", 0.2)
    monkeypatch.setattr("launchers.sites.ssh.ssh_site.END_S", 0.1)
    client = server.client()
    os.kill(client.ready.pid, signal.SIGSTOP)
    with pytest.raises(LaunchError, match="does not answer"):
        client.answer(AskTime(), TimeTold)
    assert server.last_words() == "n9 does not answer any more"
    assert_gone([client.ready.pid])


def test_a_server_that_went_unnoticed_costs_no_run(server: SshForkServer) -> None:
    client = server.client()
    os.kill(client.ready.pid, signal.SIGKILL)
    assert server._program is not None
    assert server._program.status(10) is not None  # ssh itself notices a little later
    assert server.client().answer(AskTime(), TimeTold).time > 1e9


def test_a_host_that_only_greets_is_given_up(tmp_path: Path) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(b"Welcome\n" * 2000)
        client = ForkServerClient(ours, tmp_path / "log", "n9")
        with pytest.raises(LaunchError, match="no fork server came up on n9"):
            client.wait_ready()


# ---- the site


@pytest.fixture
def host_file(tmp_path: Path) -> Path:
    path = tmp_path / "hosts"
    path.write_text("n10 10.0.0.10\nn9\n")
    return path


def test_a_site_asks_its_hosts_once_and_removes_everything(
    host_file: Path, fake_ssh: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(site_module, "remote_command", lambda *_: greeting_server())
    monkeypatch.setattr(site_module, "refuse_misfits", lambda *_: None)
    with SshSite(host_file) as site:
        assert list(site.hosts) == ["n10", "n9"]
        assert [site.preset_address(host) for host in site.hosts] == ["10.0.0.10", None]
        mine = sorted(os.sched_getaffinity(0))
        assert {host: list(cores) for host, cores in site.cores().items()} == {
            "n10": mine,
            "n9": mine,
        }
        with site.servers({"n9": 1}, None) as servers:
            assert list(servers.clients) == ["n9"]
            pid = servers.clients["n9"].ready.pid
        with site.servers({"n10": 1, "n9": 1}, None) as servers:
            assert servers.clients["n9"].ready.pid == pid
            pids = [client.ready.pid for client in servers.clients.values()]
        assert site.post_mortem() == ""
    assert_gone(pids)
    assert [path.name for path in tmp_path.glob("ps-allreduce-*")] == []


def test_all_hosts_in_trouble_are_named_in_one_line(
    host_file: Path, fake_ssh: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(site_module, "remote_command", lambda *_: "echo no luck >&2; exit 255")
    with SshSite(host_file) as site, pytest.raises(LaunchError) as caught:
        site.cores()
    assert str(caught.value) == (
        "n10 cannot be reached: see that 'ssh n10' works by hand (last heard: no luck); "
        "n9 cannot be reached: see that 'ssh n9' works by hand (last heard: no luck)."
    )


def test_the_launcher_needs_ssh_and_a_host_file(
    host_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UserError, match="openssh-client"), SshSite(host_file):
        pass
    with pytest.raises(UserError, match=r"ssh needs --host-file, .* \[user@\]name\[:port\]"):
        make_launcher(LauncherSettings(launcher="ssh"))
    make_launcher(LauncherSettings(launcher="ssh", host_file=host_file))
