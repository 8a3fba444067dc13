"""The machine on which sweeps of tests are made, and a command line that starts nothing."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from experiments import __main__ as command_line
from experiments.sweep import command, execute, job_command
from launchers import LAUNCHERS, make_launcher
from launchers.settings import LauncherSettings
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

    def collect(commit: str, hosts: Sequence[HostFacts] = ()) -> object:
        kinds = "".join(sorted({fact.kind for fact in hosts}))
        return replace(PROVENANCE, commit=commit, fingerprint=f"{machine.fingerprint}{kinds}")

    monkeypatch.setattr(execute, "collect", collect)
    return machine


@pytest.fixture
def launcher(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[FakeLauncher]:
    """Launchers of every name that start nothing, in an empty folder; four cores, no job."""
    fake = FakeLauncher()

    def make(name: str, settings: LauncherSettings) -> Any:
        if name not in LAUNCHERS:
            return make_launcher(name, settings)
        LAUNCHERS[name](settings)  # refuses what the real one would refuse
        return fake

    for module in (command_line, command, job_command):
        monkeypatch.setattr(module, "make_launcher", make, raising=False)
        monkeypatch.setattr(module, "LocalLauncher", lambda *_, **__: fake, raising=False)
        monkeypatch.setattr(module, "source_state", lambda: "0123456789ab", raising=False)
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    monkeypatch.chdir(tmp_path)
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    yield fake
    for number, handler in handlers.items():
        signal.signal(number, handler)


def run(*words: str) -> int:
    """Exit status of a command line."""
    try:
        return command_line.main(words)
    except SystemExit as stop:
        return int(stop.code or 0)
