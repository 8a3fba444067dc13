"""Which hosts measure their links at the same time.  Pure."""

from __future__ import annotations

from collections.abc import Sequence

Pair = tuple[str, str]


def rounds_of_pairs(hosts: Sequence[str]) -> list[list[Pair]]:
    """Every pair once, in as few rounds as possible, in each of which a host is in one pair.

    Source: the circle method of round-robin tournaments: one host stays, the others go round.
    """
    places: list[str | None] = [*hosts, *([None] if len(hosts) % 2 else [])]
    half = len(places) // 2
    rounds = []
    for _ in range(len(places) - 1):
        facing = zip(places[:half], reversed(places[half:]), strict=True)
        rounds.append([(a, b) for a, b in facing if a is not None and b is not None])
        places = [places[0], places[-1], *places[1:-1]]
    return [pairs for pairs in rounds if pairs]


def both_ways(pairs: Sequence[Pair]) -> list[Pair]:
    """The links of pairs, from and to; a run uses both directions at once."""
    return [link for a, b in pairs for link in ((a, b), (b, a))]
