"""Where rows of tables stand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ps_allreduce.exchange.stacking import RowRule, Stack, counts

stacks = st.builds(
    Stack,
    rows=st.lists(st.integers(1, 40), min_size=1, max_size=4).map(tuple),
    num_servers=st.integers(1, 5),
    rule=st.sampled_from(RowRule),
)


@given(stacks)
def test_every_row_has_a_place_of_its_own(stack: Stack) -> None:
    numbers = [
        int(number)
        for table, rows in enumerate(stack.rows)
        for number in stack.number(table, np.arange(rows))
    ]
    assert len(set(numbers)) == len(numbers) == sum(stack.rows)
    assert all(0 <= number < stack.num_servers * stack.rows_per_server for number in numbers)


@given(stacks)
def test_servers_hold_equally_many_rows_as_far_as_a_table_can_be_cut(stack: Stack) -> None:
    for table, rows in enumerate(stack.rows):
        held = counts(stack, stack.number(table, np.arange(rows)))
        assert sum(held) == rows
        assert max(held) == -(-rows // stack.num_servers)


@pytest.mark.parametrize(
    ("rule", "servers"),
    [
        (RowRule.RANGE, [0, 0, 0, 0, 1, 1, 1, 1]),
        (RowRule.MODULO, [0, 1, 0, 1, 0, 1, 0, 1]),
        (RowRule.HASH, [0, 1, 0, 1, 0, 1, 0, 1]),
    ],
)
def test_the_server_of_every_row(rule: RowRule, servers: list[int]) -> None:
    stack = Stack(rows=(3, 8), num_servers=2, rule=rule)
    assert list(stack.number(1, np.arange(8)) % 2) == servers


def test_the_popular_rows_of_a_range_are_on_one_server() -> None:
    asked = np.arange(10)
    held = {
        rule: counts(stack, stack.number(0, asked))
        for rule in RowRule
        for stack in [Stack(rows=(997,), num_servers=4, rule=rule)]
    }
    assert held[RowRule.RANGE] == [10, 0, 0, 0]
    assert held[RowRule.MODULO] == [3, 3, 2, 2]
    assert max(held[RowRule.HASH]) < 6
