"""The check of a cluster: its parts, and what it leaves."""

from __future__ import annotations

import zipfile
from dataclasses import replace
from pathlib import Path

import click
import pytest

from experiments.suite import accept_cluster as checklist
from experiments.suite.accept_cluster import (
    AcceptancePart,
    accept_cluster,
    check_settings,
    parts,
)
from launchers.settings import LauncherSettings
from ps_allreduce.errors import UserError
from ps_allreduce.point.strategies import Single
from tests.analysis.builders import run, save_all
from tests.fakes import make_experiment


def settings(results: Path = Path("results")) -> LauncherSettings:
    return LauncherSettings(launcher="emulated", results=results)


def said(text: str, status: int) -> AcceptancePart:
    def tell() -> int:
        click.echo(text)
        return status

    return AcceptancePart(about="?", run=tell)


def test_all_parts_are_gone_through_and_one_file_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    listed = {"doctor": said("all is well", 0), "gate": said("one differs", 1), "last": said("", 0)}
    monkeypatch.setattr(checklist, "parts", lambda _: listed)
    save_all(tmp_path / "accept-cluster" / "SmallCNN", [run(make_experiment(Single), 90.0)])
    assert accept_cluster(settings(tmp_path)) == 1
    assert "one differs" in capsys.readouterr().out
    with zipfile.ZipFile(tmp_path / "accept-cluster.zip") as packed:
        assert "status 1\none differs" in packed.read("gate.txt").decode()
        assert sum(name.endswith(".json") for name in packed.namelist()) == 1


def test_after_a_mistake_nothing_follows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    listed = {"doctor": said("", 2), "gate": said("never", 0)}
    monkeypatch.setattr(checklist, "parts", lambda _: listed)
    assert accept_cluster(settings(tmp_path)) == 2
    assert not (tmp_path / "accept-cluster.zip").exists()


def test_the_parts_ask_what_they_say() -> None:
    listed = parts(settings())
    assert list(listed) == ["doctor", "gate", "compare", "bounds"]
    assert [name for name, part in listed.items() if part.is_needed] == ["doctor"]


@pytest.mark.parametrize(
    ("stated", "refusal"),
    [
        (LauncherSettings(), "LAUNCHER=local has one host"),
        (replace(settings(), interface="10.0.0.0/24"), "the file would tell this subnet"),
    ],
)
def test_what_is_no_cluster_or_would_be_told_is_refused(
    stated: LauncherSettings, refusal: str
) -> None:
    with pytest.raises(UserError, match=refusal):
        check_settings(stated)
