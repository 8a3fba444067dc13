"""The machine on which sweeps of tests are made, and a command line that starts nothing."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from experiments import __main__ as command_line
from experiments import surroundings
from experiments.sweep import session
from launchers import make_site
from launchers.cli import run as command_ends
from launchers.settings import LauncherSettings
from ps_allreduce.process import ENDING, end_as_interrupted
from ps_allreduce.record.hosts import HostFacts
from tests.fakes import PROVENANCE, FakeLauncher


@dataclass(slots=True)
class Machine:
    """Where runs are made: its fingerprint can change."""

    fingerprint: str = "aaaaaaaa"


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    """A machine of which nothing is asked; of a cluster, the kinds of its hosts."""
    machine = Machine()

    def collect(commit: str, hosts: Sequence[HostFacts] = (), congestion: str = "") -> object:
        kinds = "".join(sorted({fact.kind for fact in hosts}))
        block = f"{machine.fingerprint}{kinds}{congestion}"
        return replace(PROVENANCE, commit=commit, fingerprint=block)

    monkeypatch.setattr(session, "collect", collect)
    return machine


@pytest.fixture
def launcher(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeLauncher:
    """Launchers of every name that start nothing, in an empty folder; no hosts are emulated."""
    return pretend_machines(monkeypatch, tmp_path)


@pytest.fixture
def own(launcher: FakeLauncher, tmp_path: Path) -> FakeLauncher:
    """A launcher, and a file with a model in the present folder."""
    (tmp_path / "mine.py").write_text("def build(): ...")
    return launcher


def pretend_machines(monkeypatch: pytest.MonkeyPatch, folder: Path) -> FakeLauncher:
    """What the fixture `launcher` does, for tests in other places."""
    fake = FakeLauncher()

    def launcher_of(settings: LauncherSettings) -> FakeLauncher:
        make_site(settings)  # refuses what the real one would refuse
        return fake

    monkeypatch.setattr(surroundings, "launcher_of", launcher_of)
    monkeypatch.setattr(surroundings, "this_machine", lambda _: fake)
    # As within a job, whose hosts are those that a study gets where nobody states a launcher.
    monkeypatch.setattr(surroundings, "inside_job", lambda: True)
    monkeypatch.setattr(surroundings, "used_by_others", lambda: 0.0)
    monkeypatch.setattr(surroundings, "source_state", lambda: "0123456789ab")
    for variable in ("SLURM_JOB_ID", "SLURM_JOBID"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.chdir(folder)
    # Whoever ends the tests means the tests: the command would end in its order, and they go on.
    monkeypatch.setattr(command_ends, "end_as_interrupted", lambda: None)
    return fake


@pytest.fixture
def asked_to_end(launcher: FakeLauncher, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeLauncher]:
    """The launcher of a command that hears when this process is asked to end."""
    monkeypatch.setattr(command_ends, "end_as_interrupted", end_as_interrupted)
    handlers = {number: signal.getsignal(number) for number in ENDING}
    yield launcher
    for number, handler in handlers.items():
        signal.signal(number, handler)


def run(*words: str) -> int:
    """Exit status of a command line."""
    try:
        return command_line.main(words)
    except SystemExit as stop:
        return int(stop.code or 0)
