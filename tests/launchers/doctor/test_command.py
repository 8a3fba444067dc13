"""`python -m launchers doctor`: a table, and a status that scripts can use."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from launchers import __main__ as command_line
from launchers.doctor import benchmarks, command, gather, sharing
from launchers.fork_servers.host_servers import measure_links
from launchers.settings import LauncherSettings
from tests.cluster import Cluster
from tests.launchers.doctor.doctor_facts import healthy
from tests.pretend import FAKE_SERVER


def run(*words: str) -> int:
    return command_line.main(["doctor", *words])


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    """The hosts behind every launcher."""
    cluster = Cluster({"n10": FAKE_SERVER, "n1": FAKE_SERVER})
    monkeypatch.setattr(command, "make_site", lambda _: cluster)
    monkeypatch.setattr(benchmarks, "SECONDS", 0.05)
    monkeypatch.setattr(benchmarks, "measure_links", partial(measure_links, seconds=0.05))
    monkeypatch.setattr(sharing, "WITHIN_S", 2.0)
    return cluster


def test_hosts_are_examined_and_shown(
    cluster: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status = run("--results", str(tmp_path / "results"))
    shown = capsys.readouterr()
    assert "\x1b" not in shown.out  # no colours in a file
    assert status == ("FAILURE" in shown.out)
    lines = shown.out.splitlines()
    assert lines[0].startswith("fork servers  ok       2 up after ")
    assert any(line.startswith("RESULTS       ok       ") for line in lines)
    assert shown.err == ""
    assert list(tmp_path.iterdir()) == []


def test_a_failure_is_a_status(
    cluster: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.broken = "no fork server came up on n1."
    assert run("--results", str(tmp_path)) == 1
    assert "FAILURE  no fork server came up on n1." in capsys.readouterr().out


def test_warnings_are_none(
    monkeypatch: pytest.MonkeyPatch, cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    facts = healthy(own_proxies={"http_proxy": "proxy:3128"})
    monkeypatch.setattr(command, "gather", lambda *_, **__: facts)
    assert run() == 0
    assert "0 failures, 1 warning; 3 hosts" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--launcher", "carrier-pigeon"], "'carrier-pigeon' is not one of local, "),
        (["--nonsense"], "No such option"),
        (["--launcher", "emulated"], "needs --hosts"),
        (["--launcher", "emulated", "--hosts", "0"], "has 1 to"),
        (["--host-file", "hosts"], "has no use for --host-file"),
    ],
)
def test_a_mistake_is_told_in_a_sentence(
    words: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*words) == 2
    shown = capsys.readouterr()
    assert told in shown.err
    assert shown.out == ""


def test_an_interruption_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch, cluster: Cluster, tmp_path: Path
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(gather, "measure_all_links", interrupt)
    assert run("--results", str(tmp_path / "results")) == 130
    assert list(tmp_path.iterdir()) == []


def test_what_was_typed_reaches_the_site(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[LauncherSettings] = []
    monkeypatch.setattr(command, "gather", lambda *_, **__: healthy())

    def make_site(settings: LauncherSettings) -> Cluster:
        asked.append(settings)
        return Cluster({"n1": FAKE_SERVER})

    monkeypatch.setattr(command, "make_site", make_site)
    assert run("--launcher", "slurm", "--hosts", "4", "--container", "apptainer exec x.sif") == 0
    assert asked == [
        LauncherSettings(launcher="slurm", hosts=4, container=("apptainer", "exec", "x.sif"))
    ]
