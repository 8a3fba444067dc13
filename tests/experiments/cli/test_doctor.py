"""The doctor with a model: refused before any host is touched, or built on all of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments.cli import model_commands as command_module
from launchers.doctor import command, trials
from ps_allreduce.errors import UserError
from ps_allreduce.point.workload import Workload
from tests.cluster import Cluster
from tests.experiments.conftest import run
from tests.fakes import FakeLauncher
from tests.pretend import FAKE_SERVER, fake_server

OWN_MODEL = ("--model", "mine.py:build", "--model-arg", "width=64")


def test_a_model_is_tried_here_and_built_on_every_host(
    own: FakeLauncher,
    tmp_path: Path,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path_factory.mktemp("tmp")))
    monkeypatch.setattr(trials, "SECONDS", 0.05)
    ill = fake_server("--job", "DescribeModel", "complain")
    monkeypatch.setattr(command, "make_site", lambda _: Cluster({"n10": FAKE_SERVER, "n1": ill}))
    assert run("doctor", *OWN_MODEL) == 1
    out, err = capsys.readouterr()
    assert err.startswith("Trying mine.py:build on this machine, with one worker.\nmine.py:build: ")
    assert own.asked[0] == (tmp_path, "mine", "build", ("width=64",))
    lines = out.splitlines()
    built = "ok       n10: mine.py:build built in 1.5 s, 1 trainable parameters"
    first = lines.index(f"model         {built}")
    assert lines[first + 1].strip() == "FAILURE  n1: out of luck."


def test_a_mistake_is_told_before_any_host_is_touched(
    own: FakeLauncher, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    own.found = UserError("mine.py:build returns a str.")
    monkeypatch.delattr(command, "make_site")
    assert run("doctor", *OWN_MODEL) == 2
    assert "mine.py:build returns a str." in capsys.readouterr().err


@pytest.mark.parametrize("name", ["SmallCNN", "SmallGPT", "BERT-base"])
@pytest.mark.usefixtures("launcher")
def test_every_model_can_be_built(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Workload] = []
    monkeypatch.setattr(command_module, "look_at_hosts", lambda _, each: asked.append(each))
    assert run("doctor", "--model", name) == 0
    assert [workload.model.name for workload in asked] == [name]
