"""Where rows of tables stand."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ps_allreduce.exchange.stacking import RowRule, Stack

SPREAD = [rule for rule in RowRule if rule is not RowRule.WHOLE]


@st.composite
def stacks(draw: st.DrawFn, rules: Sequence[RowRule] = tuple(RowRule)) -> Stack:
    """Tables of any sizes on any number of servers, by any rule."""
    rows = draw(st.lists(st.integers(1, 40), min_size=1, max_size=4).map(tuple))
    num_servers, rule = draw(st.integers(1, 5)), draw(st.sampled_from(rules))
    at = draw(st.tuples(*[st.integers(0, num_servers - 1)] * len(rows)))
    whole = at if rule is RowRule.WHOLE else ()
    return Stack(rows=rows, num_servers=num_servers, rule=rule, servers=whole)


@given(stacks())
def test_every_row_has_a_place_of_its_own(stack: Stack) -> None:
    numbers = [
        int(number)
        for table, rows in enumerate(stack.rows)
        for number in stack.number(table, np.arange(rows))
    ]
    assert len(set(numbers)) == len(numbers) == sum(stack.rows)
    assert all(0 <= number < stack.length for number in numbers)
    places = [number // stack.num_servers for number in numbers]
    servers = [number % stack.num_servers for number in numbers]
    assert all(p < stack.places_on(s) for p, s in zip(places, servers, strict=True))


@given(stacks(SPREAD))
def test_servers_hold_equally_many_rows_as_far_as_a_table_can_be_cut(stack: Stack) -> None:
    for table, rows in enumerate(stack.rows):
        held = stack.rows_of(table)
        assert sum(held) == rows
        assert max(held) == -(-rows // stack.num_servers)


@pytest.mark.parametrize(
    ("rule", "servers"),
    [
        (RowRule.RANGE, [0, 0, 0, 0, 1, 1, 1, 1]),
        (RowRule.MODULO, [1, 0, 1, 0, 1, 0, 1, 0]),
        (RowRule.HASH, [1, 0, 1, 0, 1, 0, 1, 0]),
        (RowRule.WHOLE, [1] * 8),
    ],
)
def test_the_server_of_every_row(rule: RowRule, servers: list[int]) -> None:
    whole = (0, 1) if rule is RowRule.WHOLE else ()
    stack = Stack(rows=(3, 8), num_servers=2, rule=rule, servers=whole)
    assert list(stack.number(1, np.arange(8)) % 2) == servers


@pytest.mark.parametrize("rule", [RowRule.MODULO, RowRule.HASH])
def test_the_first_rows_of_tables_are_on_different_servers(rule: RowRule) -> None:
    stack = Stack(rows=(50, 60, 70, 80), num_servers=4, rule=rule)
    assert [stack.number(table, 0) % 4 for table in range(4)] == [0, 1, 2, 3]


def test_the_popular_rows_of_a_range_are_on_one_server() -> None:
    asked = np.arange(10)
    held = {
        rule: stack.by_server(stack.number(0, asked))
        for rule in SPREAD
        for stack in [Stack(rows=(997,), num_servers=4, rule=rule)]
    }
    assert held[RowRule.RANGE] == [10, 0, 0, 0]
    assert held[RowRule.MODULO] == [3, 3, 2, 2]
    assert max(held[RowRule.HASH]) < 6
