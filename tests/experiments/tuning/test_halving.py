"""Successive halving: what comes next follows from what was, and the best candidate wins."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.tuning.halving import (
    MOST,
    LaunchOutcome,
    SideStanding,
    field_size,
    mean_rate,
    next_side,
    standings,
)

SIDES = [[f"a{number}" for number in range(MOST)], [f"b{number}" for number in range(MOST)]]

Made = dict[str, list[LaunchOutcome]]

#: Rates of candidates, by how far behind they stand; None for those that fail.
RATES = st.lists(
    st.one_of(st.none(), st.floats(1.0, 100.0)), min_size=2 * MOST, max_size=2 * MOST
).map(lambda rates: dict(zip([*SIDES[0], *SIDES[1]], rates, strict=True)))

#: So many launches a share pays for.
AFFORDABLE = st.floats(1.0, 40.0)
NODE_S = 10.0


def launched(
    rates: Mapping[str, float | None], node_s: float, share_s: float, sides: Sequence[list[str]]
) -> tuple[list[SideStanding], Made, list[str]]:
    """Both sides at their end, all launches, and the candidates in the order of launches."""
    made: Made = {}
    order: list[str] = []
    while True:
        now = standings(sides, share_s, made)
        number = next_side(now)
        if number is None:
            return now, made, order
        candidate = now[number].next
        assert candidate is not None
        order.append(candidate)
        made.setdefault(candidate, []).append(LaunchOutcome(rate=rates[candidate], node_s=node_s))
        assert len(order) < 10_000


@settings(max_examples=10)
@given(RATES, AFFORDABLE)
def test_both_sides_take_turns_and_neither_spends_more_than_its_share(
    rates: dict[str, float | None], affordable: float
) -> None:
    share_s = affordable * NODE_S
    ends, made, order = launched(rates, NODE_S, share_s, SIDES)
    for end in ends:
        assert end.spent_s <= max(share_s, NODE_S) * 1.000001
    assert sum(len(end.moments) for end in ends) == sum(map(len, made.values())) == len(order)
    for number in range(len(order)):
        firsts = [sum(name.startswith(side) for name in order[:number]) for side in "ab"]
        both_go_on = all(count < len(end.moments) for count, end in zip(firsts, ends, strict=True))
        assert not both_go_on or abs(firsts[0] - firsts[1]) <= 1


@settings(max_examples=10)
@given(RATES, AFFORDABLE)
def test_a_race_goes_on_from_any_moment_where_it_stopped(
    rates: dict[str, float | None], affordable: float
) -> None:
    share_s = affordable * NODE_S
    ends, made, order = launched(rates, NODE_S, share_s, SIDES)
    for number, candidate in enumerate(order):
        before = {name: made[name][: order[:number].count(name)] for name in made}
        now = standings(SIDES, share_s, before)
        side = next_side(now)
        assert side is not None
        assert now[side].next == candidate
    assert standings(SIDES, share_s, made) == ends


@settings(max_examples=10)
@given(RATES, AFFORDABLE)
def test_what_fails_is_out_and_the_best_of_those_that_were_tried_wins(
    rates: dict[str, float | None], affordable: float
) -> None:
    share_s = affordable * NODE_S
    ends, made, _ = launched(rates, NODE_S, share_s, SIDES)
    for end in ends:
        tried = {moment.candidate for moment in end.moments}
        good = [rate for name in tried if (rate := rates[name]) is not None]
        assert (end.best is None) == (not good)
        if end.best is not None:
            assert rates[end.best] == max(good)
            assert end.moments[-1].best_rate == pytest.approx(max(good))
        assert all(len(made[name]) <= 2 for name in tried if rates[name] is None)


def test_a_failure_is_forgiven_once_and_its_launch_made_again_at_once() -> None:
    ok, bad = LaunchOutcome(rate=2.0, node_s=1.0), LaunchOutcome(rate=None, node_s=1.0, reason="x")
    sides = [["a", "b"], ["c", "d"]]
    made = {"a": [ok], "b": [bad], "c": [ok], "d": [ok]}
    assert standings(sides, 100.0, made)[0].next == "b"
    made["b"].append(LaunchOutcome(rate=3.0, node_s=1.0))
    side = standings(sides, 100.0, made)[0]
    assert (side.best, side.spent_s, side.next) == ("b", 3.0, "b")
    made["b"].append(bad)
    side = standings(sides, 100.0, made)[0]
    assert (side.best, side.next) == ("a", "a")


def test_every_round_halves_the_others_and_the_default_stays_for_the_last() -> None:
    rates = {name: float(number) + 1 for side in SIDES for number, name in enumerate(side)}
    ends, _, _ = launched(rates, 10.0, 960.0, SIDES)  # 96 launches of each side
    rounds: dict[int, list[str]] = {}
    for moment in ends[0].moments:
        rounds.setdefault(moment.round, []).append(moment.candidate)
    assert [len(set(names)) for names in rounds.values()] == [24, 13, 7, 4, 3, 2]
    assert ends[0].best == "a23"
    last = [moment.candidate for moment in ends[0].moments if moment.is_last]
    assert set(last) == {"a0", "a23"}
    assert last.count("a0") == last.count("a23") >= 20


def test_passes_go_there_and_back() -> None:
    ends, _, _ = launched(
        {"a": 2.0, "b": 1.0, "c": 1.0, "d": 1.0}, 1.0, 8.0, [["a", "b"], ["c", "d"]]
    )
    assert [moment.candidate for moment in ends[0].moments] == list("abbaabba")


@pytest.mark.parametrize(
    ("affordable", "size"), [(0.5, 2), (4, 2), (10, 2), (20, 5), (36, 9), (500, MOST)]
)
def test_a_side_begins_with_as_many_candidates_as_its_share_pays_for(
    affordable: float, size: int
) -> None:
    assert field_size(affordable) == size


def test_both_sides_begin_with_equally_many_candidates() -> None:
    rates = dict.fromkeys([*SIDES[0], *SIDES[1]], 1.0)
    ends, _, _ = launched(rates, 1.0, 300.0, [SIDES[0][:5], SIDES[1]])
    assert [len({m.candidate for m in end.moments}) for end in ends] == [5, 5]


def test_only_passes_that_all_have_made_count() -> None:
    """So a machine that slows down in the middle of one hits nobody."""
    first = LaunchOutcome(rate=50.0, node_s=1.0)
    slow = LaunchOutcome(rate=80.0, node_s=2.0)
    faster = [LaunchOutcome(rate=60.0, node_s=1.0)]
    launches = {"a": faster, "b": [first, slow], "c": faster, "d": [first, slow]}
    for side in standings([["a", "b"], ["c", "d"]], 4.0, launches):
        assert [moment.candidate for moment in side.moments][1:] in (["b", "b"], ["d", "d"])
        assert (side.best, side.next) in (("a", None), ("c", None))
        assert side.moments[-1].best_rate == pytest.approx(60.0)


def test_a_lucky_launch_is_corrected_by_the_next() -> None:
    lucky = [LaunchOutcome(rate=rate, node_s=1.0) for rate in (16.0, 4.0)]
    assert mean_rate(lucky) == pytest.approx(8.0)
    steady = [LaunchOutcome(rate=9.0, node_s=1.0)] * 2
    launches = {"a": lucky, "b": steady, "c": steady, "d": steady}
    moments = standings([["a", "b"], ["c", "d"]], 4.0, launches)[0].moments
    assert [(m.best, round(m.best_rate or math.nan)) for m in moments] == [
        ("a", 16),
        ("a", 16),
        ("a", 16),
        ("b", 9),
    ]
