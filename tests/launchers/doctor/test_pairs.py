"""All pairs are measured, nobody twice at a time, in as few rounds as can be."""

from __future__ import annotations

from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from launchers.doctor.pairs import both_ways, rounds_of_pairs
from tests.examples import fast


@fast
@given(st.integers(0, 40))
def test_every_pair_meets_once(number: int) -> None:
    hosts = [f"n{index}" for index in range(number)]
    rounds = rounds_of_pairs(hosts)
    met = [frozenset(pair) for pairs in rounds for pair in pairs]
    assert len(met) == len(set(met))
    assert set(met) == {frozenset(pair) for pair in combinations(hosts, 2)}
    for pairs in rounds:
        busy = [host for pair in pairs for host in pair]
        assert len(busy) == len(set(busy))
    fewest = number - 1 + number % 2 if number > 1 else 0
    assert len(rounds) == fewest


def test_a_pair_has_two_directions() -> None:
    assert both_ways([("n10", "n1")]) == [("n10", "n1"), ("n1", "n10")]
