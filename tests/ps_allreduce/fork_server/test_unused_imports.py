"""Packages are missing for as long as was asked, and only those that were not there before."""

from __future__ import annotations

import importlib
import sys

import pytest

from ps_allreduce.fork_server.child import left_out


@pytest.fixture
def unused(monkeypatch: pytest.MonkeyPatch) -> str:
    """A module that can be imported and was not yet."""
    monkeypatch.delitem(sys.modules, "this", raising=False)
    monkeypatch.setattr(sys, "stdout", None)  # it prints a poem
    return "this"


def test_a_package_is_missing_for_a_while(unused: str) -> None:
    with pytest.raises(ImportError), left_out(unused):
        importlib.import_module(unused)
    assert unused not in sys.modules
    assert importlib.import_module(unused).__name__ == unused


def test_what_is_imported_stays() -> None:
    with left_out("importlib"):
        assert importlib.import_module("importlib") is importlib
    assert sys.modules["importlib"] is importlib
