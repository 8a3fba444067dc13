"""Every strategy has its backend, wherever that lies.  TensorFlow is not imported."""

from __future__ import annotations

from pathlib import Path

import pytest

import ps_allreduce.backends
from ps_allreduce.backends import ALTERED, BACKENDS
from ps_allreduce.point.strategies import STRATEGIES


def test_every_strategy_has_a_backend() -> None:
    assert set(BACKENDS) == set(STRATEGIES)


@pytest.mark.parametrize(("module", "name"), [*BACKENDS.values(), *ALTERED.values()])
def test_a_backend_is_where_it_is_looked_for(module: str, name: str) -> None:
    path = Path(ps_allreduce.backends.__file__).parent / f"{module.replace('.', '/')}.py"
    assert f"\nclass {name}(" in path.read_text(encoding="utf-8")
