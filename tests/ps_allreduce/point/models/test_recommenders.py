"""How many rows recommender models have, as published."""

from __future__ import annotations

from ps_allreduce.point.models.recommenders import CRITEO_ROWS, RECOMMENDERS, SMALL_DLRM


def test_criteos_tables_are_those_that_were_published() -> None:
    assert (len(CRITEO_ROWS), sum(CRITEO_ROWS)) == (26, 33_762_577)


def test_the_small_ones_have_a_hundredth_of_their_rows() -> None:
    rows = RECOMMENDERS[SMALL_DLRM].rows
    assert (len(rows), sum(rows), min(rows), max(rows)) == (26, 337_648, 2, 101_313)
