"""Launchers for real runs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from ps_allreduce.point.data import Digits
from ps_allreduce.point.workload import Workload
from tests.cluster import LocalLauncher

PATCHED = Path(__file__).with_name("patched_fork_server.py")


@pytest.fixture
def two_cores(need_cores: Callable[[int], None]) -> None:
    """Two workers need two cores."""
    need_cores(2)


@pytest.fixture(scope="session")
def launcher(data_dir: Path) -> Iterator[LocalLauncher]:
    """The local launcher with digits at hand."""
    with LocalLauncher(data_dir) as local:
        local.prepare(Workload(data=Digits()))
        yield local


@pytest.fixture
def patched_launcher(data_dir: Path) -> Iterator[Callable[[str], LocalLauncher]]:
    """Makes local launchers whose strategies are changed on purpose."""
    with ExitStack() as stack:

        def make(patch: str) -> LocalLauncher:
            words = (sys.executable, str(PATCHED), patch)
            local = LocalLauncher(data_dir, fork_server=words)
            return stack.enter_context(local)

        yield make
