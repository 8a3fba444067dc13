"""Settings of the wire, and of strategies whose workers do not wait for each other."""

from __future__ import annotations

from typing import Any

import pytest

from ps_allreduce.errors import UserError
from ps_allreduce.point.strategies import Strategy
from ps_allreduce.point.wire import STOCK, Wire
from tests.fakes import make_experiment


@pytest.mark.parametrize(
    ("mistake", "sentence"),
    [
        ({"group_bytes": 3}, "group_bytes must be 0 or at least 4, got 3"),
        ({"cut_bytes": -1}, "cut_bytes must be 0 or at least 4, got -1"),
        ({"in_flight": -1}, r"in_flight must be at least 0 \(no bound\), got -1"),
    ],
)
def test_a_mistaken_setting_is_refused(mistake: dict[str, int], sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        Wire(**mistake)  # type: ignore[arg-type]


def test_sizes_count_elements_of_four_bytes() -> None:
    wire = Wire(group_bytes=1000, cut_bytes=402)
    assert (wire.group_size, wire.cut_size) == (250, 100)


@pytest.mark.parametrize("strategy", [Strategy.SINGLE, Strategy.NO_COMMUNICATION])
def test_what_sends_nothing_has_no_wire_to_set(strategy: Strategy) -> None:
    with pytest.raises(UserError, match="sends nothing"):
        make_experiment(strategy, wire=STOCK)


def _served(strategy: Strategy, **settings: Any) -> None:
    make_experiment(strategy, num_workers=2, num_ps=1, **settings)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"staleness": 0}, "staleness 0 is synchronous: use strategy ps_sync"),
        ({"staleness": -1}, "staleness must be at least 1, got -1"),
        (
            {"staleness": 2, "steps_per_dispatch": 4},
            "staleness 2 leaves no room for steps_per_dispatch 4",
        ),
        ({"steps_per_dispatch": 0}, "steps_per_dispatch must be at least 1, got 0"),
        ({"steps_per_dispatch": 17}, "steps_per_dispatch must be at most 16, got 17"),
    ],
)
def test_a_mistaken_dealing_of_steps_is_refused(settings: dict[str, int], sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        _served(Strategy.PS_ASYNC, **settings)


@pytest.mark.parametrize("settings", [{"staleness": 2}, {"steps_per_dispatch": 2}])
def test_only_strategies_that_deal_steps_can_be_told_how(settings: dict[str, int]) -> None:
    with pytest.raises(UserError, match="waits for all workers"):
        _served(Strategy.PS_SYNC, **settings)
