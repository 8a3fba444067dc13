"""A comparison is of a metric: by its direction, and by whether every launch reached a value."""

from __future__ import annotations

import pandas as pd
import pytest

from analysis.data.cases import Case
from analysis.data.metric import RATE, Direction, Metric
from analysis.report.meetings import meeting_sentence
from analysis.stats.comparisons import Comparison, comparisons
from analysis.stats.decision import Outcome
from analysis.stats.points import point_table
from ps_allreduce.point.strategies import AllReduce, SynchronousServers
from tests.analysis.builders import case_of, metrics, run, times
from tests.fakes import make_experiment

RING, SYNC = (make_experiment(kind, 2) for kind in (AllReduce, SynchronousServers))

SLOWEST_STEPS = Metric(
    name="95th percentile of steps", column="step_time_p95_s", unit="s", direction=Direction.LESS
)
TO_TARGET = Metric(
    name="target",
    column="evaluation_s",
    unit="s",
    direction=Direction.LESS,
    always_reached=False,
)


def case_with(**changes: tuple[float, float]) -> Case:
    """All-reduce makes twice the rate, with other metrics of all-reduce and of servers."""
    return case_of(
        run(own, rate, turn, metrics=metrics(rate, **{n: v[side] for n, v in changes.items()}))
        for side, (own, factor) in enumerate(((RING, 2.0), (SYNC, 1.0)))
        for turn, rate in times(factor).items()
        if rate is not None
    )


def main_of(case: Case, metric: Metric) -> Comparison:
    main = comparisons(case, metric).main
    assert main is not None
    return main


def test_less_of_a_time_is_better_and_a_ratio_says_how_many_times() -> None:
    case = case_with(step_time_p95_s=(0.3, 0.1))
    assert main_of(case, RATE).outcome is Outcome.FASTER
    row = main_of(case, SLOWEST_STEPS)
    assert row.outcome is Outcome.SLOWER
    assert row.decision.ratio == pytest.approx(1 / 3)
    assert "(ps_sync, round_robin) is 3.00x [3.00, 3.00] faster than all-red" in meeting_sentence(
        row
    )


def test_tables_show_the_metric_that_they_are_asked_for() -> None:
    case = case_with(step_time_p95_s=(0.3, 0.1))
    assert sorted(point_table(case, SLOWEST_STEPS)["rate"]) == pytest.approx([0.1, 0.3])
    assert point_table(case)["rate"].min() == pytest.approx(100.0)


@pytest.mark.parametrize(
    ("missed", "said"),
    [
        (0, "3.00x [3.00, 3.00] faster than all-reduce"),
        (
            1,
            "3 of 4 launches of ps_sync, round_robin reached the target, and those may be ",
        ),
    ],
)
def test_of_launches_that_did_not_all_reach_a_value_nothing_is_decided(
    missed: int, said: str
) -> None:
    ring, sync = ([run(own, 100.0, turn) for turn in range(4)] for own in (RING, SYNC))
    case = case_of(ring, sync)
    for point in case.points:
        seconds = 30.0 if point.experiment == RING else 10.0
        of_sync = missed * (point.experiment == SYNC)
        values = [None] * of_sync + [seconds] * (4 - of_sync)
        point.launches[TO_TARGET.column] = pd.array(values, dtype="Float64")
    assert said in meeting_sentence(main_of(case, TO_TARGET))
    assert main_of(case, RATE).outcome is Outcome.EQUAL
