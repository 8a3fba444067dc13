"""A target is met, missed, or left open by its interval."""

from __future__ import annotations

import pytest

from analysis.suite.targets import Limits, no_less_than, target_text, up_to


@pytest.mark.parametrize(
    ("found", "allowed", "said"),
    [
        ((1.0, 1.005), up_to(1.01), "met"),
        ((1.0, 1.02), up_to(1.01), "undecided: why"),
        ((1.02, 1.03), up_to(1.01), "not met: why"),
        ((0.95, 0.97), no_less_than(0.9), "met"),
        ((0.985, 0.989), (0.99, 1.01), "not met: why"),
        ((0.98, 1.02), (0.99, 1.01), "undecided: why"),
        ((None, None), up_to(1.0), "undecided: why"),
    ],
)
def test_what_is_said_of_a_target(
    found: tuple[float | None, float | None], allowed: Limits, said: str
) -> None:
    assert target_text("as asked", found, allowed, "why") == f"(target: as asked, {said})"


def test_without_a_known_reason_none_is_told() -> None:
    assert target_text("at most 3", (4.0, 4.0), up_to(3.0)) == "(target: at most 3, not met)"
