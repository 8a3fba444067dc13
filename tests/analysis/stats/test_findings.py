"""A headline is a decision: of one side alone the best one that there is."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

import pytest

from analysis.data.cases import Case
from analysis.planning.choice import choose
from analysis.report.pages.first_page import key_numbers
from analysis.report.verdict import verdict
from analysis.stats.comparisons import comparisons
from analysis.stats.findings import finding
from ps_allreduce.point.placement import Policy
from ps_allreduce.point.strategies import (
    AllReduce,
    AnyStrategy,
    AsynchronousServers,
    Single,
    SynchronousServers,
)
from ps_allreduce.record.records import RunRecord
from tests.analysis.builders import case_of, runs, save_all, times
from tests.fakes import make_experiment

ROUND, EVEN = Policy.ROUND_ROBIN, Policy.PARTITIONED

#: Rates of three launches by servers and placement: the highest mean is noise.
SWEEP = {
    (1, ROUND): (483.0, 470.0, 500.0),
    (2, ROUND): (600.0, 480.0, 770.0),
    (2, EVEN): (724.0, 710.0, 745.0),
    (4, ROUND): (484.0, 300.0, 900.0),
    (4, EVEN): (790.0, 300.0, 2100.0),
}


def swept(strategy: type[AnyStrategy] = SynchronousServers) -> list[RunRecord]:
    """Servers at four workers."""
    return [
        record
        for (count, policy), rates in SWEEP.items()
        for record in runs(
            make_experiment(strategy, 4, num_ps=count, placement=policy), dict(enumerate(rates))
        )
    ]


def case_with(*more: Iterable[RunRecord]) -> Case:
    """The synchronous servers beside others."""
    return case_of(swept(), *more)


def all_reduce(factor: float) -> list[RunRecord]:
    """At as many workers."""
    return runs(make_experiment(AllReduce, 4), times(factor))


@pytest.mark.parametrize("strategy", [SynchronousServers, AsynchronousServers])
def test_a_noisy_highest_mean_hides_no_decided_setting(strategy: type[AnyStrategy]) -> None:
    case, name = case_of(swept(strategy)), strategy.kind
    told = verdict(case).headline
    assert f" is fastest. {name}, partitioned, 2 ps made " in told
    assert f"faster than {name}, round_robin, 1 ps, 3 launches each; whether it is faster" in told
    others = ("round_robin, 2", "round_robin, 4", "partitioned, 4")
    left = f"3 others ({'; '.join(f'{name}, {each} ps' for each in others)})"
    assert f"whether it is faster than {left} is not decided. The mean rate of" in told
    assert f"The mean rate of {name}, partitioned, 4 ps is 792.5 [" in told
    assert re.search(f"over {name}, partitioned, 2 ps it is [^,]+, [^,]+, undecided: ", told)
    assert [each.meaning for each in key_numbers(case)][:2] == [
        f"images/s: {name}, partitioned, 2 ps, 4 workers",
        f"ratio: over {name}, round_robin, 1 ps",
    ]


def test_a_ratio_of_too_few_launches_is_called_so() -> None:
    once = case_of([each for each in swept() if each.repetition == 0])
    assert key_numbers(once)[1].meaning.startswith(
        "ratio, fewer than three launches ended well: over ps_sync, "
    )


def test_no_headline_opens_with_the_slower_setting_of_a_side() -> None:
    case = case_with(all_reduce(7.24))
    decided = finding(comparisons(case), case.points)
    assert decided is not None
    assert decided.second.name == "ps_sync, round_robin, 1 ps"
    told = verdict(case).headline
    assert told.startswith("Undecided between ps_sync, partitioned, 4 ps and all-reduce at 4 w")
    assert "round_robin" not in told


def test_a_side_is_told_by_the_setting_that_shows_the_difference() -> None:
    case = case_with(all_reduce(4.0))
    told = verdict(case).headline
    assert told.startswith("A parameter-server setting (ps_sync, partitioned, 2 ps) is ")
    main = comparisons(case).main
    assert main is not None
    low = main.decision.inverse().low
    assert low is not None
    assert low > 1


def test_the_setting_that_is_taken_home_is_the_one_that_leads(tmp_path: Path) -> None:
    save_all(tmp_path / "ps-sweep", swept())
    taken = choose(tmp_path, "best", None).record.experiment
    assert (taken.num_ps, taken.strategy.columns()["placement"]) == (2, "partitioned")


def test_a_single_worker_that_is_equal_is_not_told_as_faster() -> None:
    case = case_of(
        runs(make_experiment(Single), times(1.01)),
        runs(make_experiment(AllReduce, 2), times(1.0)),
        runs(make_experiment(SynchronousServers, 2), times(0.5)),
    )
    said = "A single worker is equal within 3 % (1.01x [1.01, 1.01]) to the better of "
    assert said in verdict(case).network
