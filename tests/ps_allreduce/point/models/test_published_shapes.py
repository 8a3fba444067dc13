"""Published models have the sizes and the imbalance that are known of them."""

from __future__ import annotations

import pytest

from ps_allreduce.point.models.recommenders import CRITEO_ROWS, RECOMMENDERS, SMALL_DLRM
from ps_allreduce.point.models.weights import PublishedModel
from ps_allreduce.point.placement import Policy, make_plan

#: Parameters; the largest variable in MB; max/mean on 2, 4 and 8 servers with round robin, and on 8
#: with largest first.
KNOWN = {
    "BERT-base": (109_482_240, 94.0, (1.57, 1.59, 2.61), 1.71),
    "GPT-2-small": (124_439_808, 154.0, (1.99, 2.61, 4.76), 2.48),
    "ViT-B-16": (86_567_656, 9.4, (1.98, 2.00, 3.27), 1.04),
}


@pytest.mark.parametrize("name", KNOWN)
def test_sizes_and_imbalance_are_those_that_are_known(name: str) -> None:
    parameters, largest_mb, round_robin, largest_first = KNOWN[name]
    variables = PublishedModel(name=name).variables
    sizes = [spec.num_bytes for spec in variables]
    assert sum(sizes) == 4 * parameters
    assert max(sizes) / 1e6 == pytest.approx(largest_mb, rel=0.005)
    imbalance = [make_plan(Policy.ROUND_ROBIN, variables, n).max_over_mean for n in (2, 4, 8)]
    assert imbalance == pytest.approx(round_robin, abs=0.005)
    balanced = make_plan(Policy.LARGEST_FIRST, variables, 8)
    assert balanced.max_over_mean == pytest.approx(largest_first, abs=0.005)


def test_criteos_tables_are_those_that_were_published() -> None:
    assert (len(CRITEO_ROWS), sum(CRITEO_ROWS)) == (26, 33_762_577)


def test_the_small_ones_have_a_hundredth_of_their_rows() -> None:
    rows = RECOMMENDERS[SMALL_DLRM].rows
    assert (len(rows), sum(rows), min(rows), max(rows)) == (26, 337_648, 2, 101_313)
