"""What is printed of a number does not hide what was decided by it."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd
import pytest

from analysis.stats.decision import Decision, Outcome
from analysis.wording import (
    bytes_text,
    factor_text,
    p_text,
    percent_text,
    range_text,
    rate_text,
    ratio_text,
    taken_text,
)


@pytest.mark.parametrize(
    ("ends", "told"),
    [
        ((1.8, 1.6, 2.05), "1.80 [1.60, 2.05]"),
        ((1.403, 1.00031, 1.969), "1.4030 [1.0003, 1.9690]"),
        ((1.35, 0.9981, 1.84), "1.350 [0.998, 1.840]"),
        ((0.9, 0.81, 0.99996), "0.90000 [0.81000, 0.99996]"),
        ((1.0, 1.0, 1.0), "1.00 [1.00, 1.00]"),
        ((1.00000001, 0.99999999, 1.00000003), "1.00 [1.00, 1.00]"),
        ((1.003, None, None), "1.00"),
        ((0.00454, 0.00409, 0.00504), "0.0045 [0.0041, 0.005]"),
    ],
)
def test_an_interval_shows_on_which_side_of_1_its_ends_lie(
    ends: tuple[float, float | None, float | None], told: str
) -> None:
    assert ratio_text(*ends) == told


def test_what_is_faster_is_seen_to_be_beyond_the_margin() -> None:
    faster = Decision(
        outcome=Outcome.FASTER,
        ratio=1.0306,
        low=1.0201,
        high=1.0349,
        p_value=0.01,
        n_first=3,
        n_second=3,
    )
    assert factor_text(faster) == "1.031x [1.020, 1.035]"
    assert factor_text(replace(faster, ratio=1.04)) == "1.04x [1.02, 1.03]"
    assert factor_text(replace(faster, outcome=Outcome.UNDECIDED)) == "1.03x [1.02, 1.03]"


@pytest.mark.parametrize(
    ("p_value", "told"), [(0.0191, "0.019"), (0.0497, "0.0497"), (0.05003, "0.05003"), (None, "-")]
)
def test_a_p_value_shows_on_which_side_of_the_level_it_lies(
    p_value: float | None, told: str
) -> None:
    assert p_text(p_value) == told


@pytest.mark.parametrize(
    ("shares", "told"),
    [
        ((0.83, 0.8966), "83 to 89.7%"),
        ((0.83, 0.9), "83 to 90%"),
        ((0.899999, 0.9002), "90 to 90.02%"),
        ((0.004, 0.002), "under 1%"),
    ],
)
def test_a_share_shows_on_which_side_of_a_limit_it_lies(
    shares: tuple[float, ...], told: str
) -> None:
    assert range_text(pd.Series(shares), 0.9) == told


def test_the_most_that_is_above_a_limit_does_not_read_as_the_limit() -> None:
    assert percent_text(0.000104, 0.0001, 2) == "0.0104%"
    told = taken_text({"other programs": [0.0503]}, "1 run")
    assert (
        told == "More than 5% of a host's processor time went to other programs in 1 of 1 run "
        "(up to 5.03%)."
    )


def test_a_rate_and_a_size_have_three_digits_in_every_unit() -> None:
    rates = (190.4e6, 999.4e6, 999.7e6, 1.5e12, 999.9, 0.0)
    assert [*map(rate_text, rates)] == [
        *("190 Mbit/s", "999 Mbit/s", "1 Gbit/s", "1500 Gbit/s", "1 kbit/s", "0 bit/s"),
    ]
    assert bytes_text(999_999) == "1 MB"
