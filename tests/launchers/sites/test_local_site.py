"""This machine as a site: what it refuses, and that nothing of it stays behind."""

from __future__ import annotations

import os
import socket
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

import pytest

from launchers.fork_servers.client import ForkServerClient
from launchers.protocol import Capacity
from launchers.run.launcher import HostsLauncher
from launchers.sites.emulated.site import EmulatedSite
from launchers.sites.local import LocalForkServer, LocalSite
from ps_allreduce.errors import UserError
from ps_allreduce.point.network import EmulatedNetwork
from ps_allreduce.point.resources import Device, Resources
from ps_allreduce.point.spread import Spread
from ps_allreduce.point.strategies import AllReduce, Single
from tests.fakes import make_experiment
from tests.pretend import FAKE_SERVER
from tests.talk import assert_gone


@pytest.fixture
def launcher(tmp_path: Path) -> HostsLauncher:
    """Nothing is started as long as nothing is run."""
    return HostsLauncher(LocalSite(), tmp_path)


def test_tasks_cannot_be_spread_over_one_host(launcher: HostsLauncher) -> None:
    with pytest.raises(UserError, match="the launcher local has one host"):
        launcher.check(make_experiment(spread=Spread()))


def test_what_does_not_fit_on_the_cores_is_refused_before_anything_runs(
    launcher: HostsLauncher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {4})
    launcher.check(make_experiment(Single))
    with pytest.raises(UserError, match=f"2 x 1 cores are needed but host {socket.gethostname()}"):
        launcher.check(make_experiment(AllReduce))
    assert launcher.capacity() == Capacity(num_hosts=1, cores_per_host=1)


def test_leaving_removes_everything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    site = LocalSite(FAKE_SERVER)
    with HostsLauncher(site, tmp_path), site.servers({}, None) as servers:
        (client,) = servers.clients.values()
        assert Path(client.ready.scratch).parent == tmp_path / "tmp"
    assert_gone([client.ready.pid])
    assert list((tmp_path / "tmp").iterdir()) == []


def test_an_interruption_while_tensorflow_is_imported_leaves_no_process(tmp_path: Path) -> None:
    code = "import os, sys, time; open(sys.argv[1], 'w').write(str(os.getpid())); time.sleep(600)"
    words = (sys.executable, "-c", code, str(tmp_path / "pid"))
    server = LocalForkServer(words, "n9")
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


def test_this_machine_may_have_gpus_and_emulated_hosts_have_none() -> None:
    network = EmulatedNetwork(num_hosts=2, bits_per_s=1e9)
    emulated = make_experiment(AllReduce, launcher="emulated", spread=Spread(), network=network)
    on_gpu = Resources(device=Device.GPU)
    LocalSite().check(make_experiment(AllReduce, resources=on_gpu))
    site = EmulatedSite(network)
    site.check(emulated)
    with pytest.raises(UserError, match="emulated hosts have no GPUs; use the device cpu"):
        site.check(replace(emulated, resources=on_gpu))
