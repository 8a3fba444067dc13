"""Hosts for launchers that are not really there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from launchers.run import follow
from tests.cluster import ADDRESSES, Cluster
from tests.pretend import pretending_server


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tasks")


@pytest.fixture(scope="module")
def kept(folder: Path) -> Iterator[Cluster]:
    with Cluster(dict.fromkeys(ADDRESSES, pretending_server(folder))) as cluster:
        yield cluster


@pytest.fixture
def cluster(kept: Cluster, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    """The cluster of all tests, as if it were new."""
    monkeypatch.setattr(follow, "GRACE_S", 0.1)
    fresh = Cluster(kept.words)
    fresh.running = kept.running
    return fresh
