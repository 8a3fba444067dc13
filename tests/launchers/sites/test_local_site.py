"""This machine as a site: what it refuses, and that nothing of it stays behind."""

from __future__ import annotations

import os
import socket
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest

from launchers.fork_servers.client import ForkServerClient
from launchers.protocol import Capacity
from launchers.run.launcher import HostsLauncher
from launchers.sites.local import LocalSite, OwnServer
from ps_allreduce.errors import UserError
from ps_allreduce.point.spread import Spread
from ps_allreduce.point.strategies import Strategy
from tests.fakes import make_experiment
from tests.pretend import FAKE_SERVER
from tests.talk import assert_gone


@pytest.fixture
def launcher(tmp_path: Path) -> HostsLauncher:
    """Nothing is started as long as nothing is run."""
    return HostsLauncher(LocalSite(allow_login_node=True), tmp_path)


def test_tasks_cannot_be_spread_over_one_host(launcher: HostsLauncher) -> None:
    with pytest.raises(UserError, match="the launcher local has one host"):
        launcher.check(make_experiment(spread=Spread()))


def test_what_does_not_fit_on_the_cores_is_refused_before_anything_runs(
    launcher: HostsLauncher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {4})
    launcher.check(make_experiment(Strategy.SINGLE))
    with pytest.raises(UserError, match=f"2 x 1 cores are needed but host {socket.gethostname()}"):
        launcher.check(make_experiment(Strategy.ALLREDUCE))
    assert launcher.capacity() == Capacity(num_hosts=1, cores_per_host=1)


def test_leaving_removes_everything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    site = LocalSite(allow_login_node=True, fork_server=FAKE_SERVER)
    with HostsLauncher(site, tmp_path), site.servers({}, None) as servers:
        (client,) = servers.clients.values()
        assert Path(client.ready.scratch).parent == tmp_path / "tmp"
    assert_gone([client.ready.pid])
    assert list((tmp_path / "tmp").iterdir()) == []


def test_an_interruption_while_tensorflow_is_imported_leaves_no_process(tmp_path: Path) -> None:
    code = "import os, sys, time; open(sys.argv[1], 'w').write(str(os.getpid())); time.sleep(600)"
    words = (sys.executable, "-c", code, str(tmp_path / "pid"))
    server = OwnServer(words, "n9")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ForkServerClient, "wait_ready", interrupt_when_there(tmp_path / "pid"))
        with pytest.raises(KeyboardInterrupt):
            server.client()
    assert_gone([int((tmp_path / "pid").read_text())])
    server.close()


def interrupt_when_there(path: Path) -> Callable[..., NoReturn]:
    def wait(*_: object) -> NoReturn:
        while not path.exists() or not path.read_text():
            time.sleep(0.01)
        raise KeyboardInterrupt

    return wait
