"""How many rows recommender models have, and how often each is looked up."""

from __future__ import annotations

import numpy as np
import pytest

from ps_allreduce.point.models.recommenders import (
    CRITEO_ROWS,
    HUGECTR_EXPONENT,
    RECOMMENDERS,
    SMALL_DLRM,
    row_shares,
)


def test_criteos_tables_are_those_that_were_published() -> None:
    assert (len(CRITEO_ROWS), sum(CRITEO_ROWS)) == (26, 33_762_577)


def test_the_small_ones_have_a_hundredth_of_their_rows() -> None:
    rows = RECOMMENDERS[SMALL_DLRM].rows
    assert (len(rows), sum(rows), min(rows), max(rows)) == (26, 337_648, 2, 101_313)


@pytest.mark.parametrize("exponent", [0.0, 0.9, 1.0, HUGECTR_EXPONENT])
def test_shares_fall_as_the_power_says(exponent: float) -> None:
    shares = row_shares(1000, exponent)
    assert shares.sum() == pytest.approx(1.0)
    # Far from the first row a part of the density is as high as in its middle.
    assert shares[99] / shares[799] == pytest.approx((800.5 / 100.5) ** exponent, rel=1e-3)


def test_even_ids_are_drawn_evenly() -> None:
    assert row_shares(8, 0.0) == pytest.approx(np.full(8, 1 / 8))


def test_the_most_popular_row_takes_its_part_of_the_integral() -> None:
    # 1/x from 1 to 2 over 1/x from 1 to 4.
    assert row_shares(3, 1.0)[0] == pytest.approx(np.log(2) / np.log(4))
