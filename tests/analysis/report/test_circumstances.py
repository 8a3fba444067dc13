"""Doubts that only several hosts give rise to."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pandas as pd
import pytest

from analysis.data.blocks import SweepResults
from analysis.data.cases import Case, make_cases
from analysis.figures.against_workers import plot_efficiency
from analysis.report.circumstances import (
    above_one_lines,
    attempts_lines,
    busy_lines,
    loss_lines,
    unfinished_text,
)
from analysis.report.pages.case_pages import legend
from analysis.report.pages.page_parts import CaseReport
from analysis.report.screen import verdict_text
from analysis.report.table import report_table, text_table
from analysis.report.verdict import verdict
from analysis.report.what_was_run import what_was_run
from analysis.report.where_time_goes import humps_lines
from analysis.stats.points import point_table
from analysis.wording import points_text
from ps_allreduce.point.resources import Spread
from ps_allreduce.point.strategies import (
    AllReduce,
    NoCommunication,
    Single,
    SynchronousServers,
)
from ps_allreduce.point.workload import EmulatedCompute
from tests.analysis.builders import case_of, reported, run, runs, table_of, tasks_on, times
from tests.analysis.report.test_sentences import AWAY_RING, circumstances, emulated, losses, of_job
from tests.fakes import make_experiment, make_host

COMPUTE = EmulatedCompute(forward_s=0.01, backward_s=0.02)


def ring_of(case: Case) -> pd.Series:
    return point_table(case).iloc[-1]


@pytest.mark.parametrize(
    ("begun", "told"),
    [
        (["a", "b"], "program."),
        (["a"], "program, 1 of them at points that no table shows."),
        ([], "program, at points that no table shows."),
    ],
)
def test_planned_runs_that_no_table_shows_are_counted_once(begun: list[str], told: str) -> None:
    block = SimpleNamespace(table=pd.DataFrame({"experiment_id": begun}))
    files = SimpleNamespace(damaged={})
    results = SimpleNamespace(block=block, files=files, missing=("a/0", "b/0"))
    text = unfinished_text(cast(SweepResults, results))
    assert text.startswith("2 planned runs are not made yet with this machine")
    assert text.endswith(told)


@pytest.mark.parametrize("busy", [0.9, 1.0, None])
def test_a_busy_machine_claims_no_efficiency_and_is_marked(busy: float | None) -> None:
    case = emulated(busy, oversubscribed=True)
    found = ring_of(case)
    assert found["marks"] == "*"
    assert list(found[["efficiency_single", "speedup_single"]].isna()) == [True, False]
    assert text_table(case)["rate"].iloc[-1].endswith("] *")
    assert "* processors may have been the limit: see the warnings." in legend(case)
    assert plot_efficiency(case) is None


@pytest.mark.parametrize(
    ("busy", "compute", "claims"),
    [
        (0.65, None, True),
        (0.89, None, True),
        (0.89, COMPUTE, True),
        (0.95, COMPUTE, False),  # emulated compute does not excuse a busy machine
    ],
)
def test_a_machine_with_time_left_claims_efficiency(
    busy: float, compute: EmulatedCompute | None, claims: bool
) -> None:
    # Planned cores do not count where processors were idle a third of the time.
    found = ring_of(emulated(busy, compute, oversubscribed=busy < 0.7))
    assert (found["marks"] == "", found["efficiency_single"] > 0) == (claims, claims)


def test_emulated_workers_that_differ_are_told() -> None:
    told = dict(what_was_run(circumstances()["emulated workers that differ"]))
    ends = "10 steps and 1 s, which ends at the latest when 40 steps and 10 s are both over; "
    assert ends in told["profile"]
    differing = "factors of workers 1:1.5,3:0.8, jitter gamma:0.1:1"
    assert told["compute"] == f"emulated: forward 0.01 s, backward 0.02 s, {differing}"


def test_disturbed_runs_are_told_with_their_points() -> None:
    loaded = (make_host("n0", foreign_load=0.31, load_average=8.5),)
    begun = (make_host("n0", load_average=8.5),)
    case = case_of(
        runs(make_experiment(Single), times(1.0)),
        runs(make_experiment(AllReduce, 2), times(2.0), hosts=loaded),
        runs(make_experiment(SynchronousServers, 2), {**times(2.0), 3: None}, hosts=begun),
    )
    taken, busy = busy_lines(case)
    assert "in 3 of 9 runs (known of 3; up to 31%: 3 of all-reduce, 2 workers)" in taken
    assert busy.startswith("3 of 9 runs began with a load average above 2 per processor: 3 of ps_")


def test_no_reason_is_the_commonest_of_reasons_that_are_as_common() -> None:
    own = make_experiment(AllReduce, 2)
    bad = [runs(own, {n: None}, reason=f"reason {n}") for n in (3, 4)]
    (told,) = attempts_lines(case_of(runs(own, times(1.0)), *bad).attempts)
    assert "2 failed. A reason (1 of 2): reason " in told
    bad.append(runs(own, {5: None}, reason="reason 4"))
    (told,) = attempts_lines(case_of(runs(own, times(1.0)), *bad).attempts)
    assert told.endswith("3 failed. Commonest reason (2 of 3): reason 4")


def test_of_runs_that_stalled_it_is_counted_how_many_lost_packets() -> None:
    told = {title: loss_lines(case)[-1] for title, case in losses().items() if "stalls " in title}
    assert told["stalls with a known loss"].endswith(
        " Known to have lost more than 0.01% of the segments: all of these."
    )
    assert told["stalls without a known loss"].endswith(
        " Known to have lost more than 0.01% of the segments: none of these."
    )


def test_of_many_disturbed_points_those_with_most_runs_are_named() -> None:
    points = [*"aaabbccde"]
    assert points_text(points, [True] * len(points)) == ""
    told = points_text([*points, "a"], [*[True] * len(points), False])
    assert told == ": 3 of a; 2 of b; 2 of c; 2 runs of 2 other points"
    assert points_text([*"aabcdd", "e"], [*[True] * 6, False]) == ": 2 of a; 2 of d; 1 of b; 1 of c"


@pytest.mark.parametrize(("rate", "is_told"), [(202.0, False), (212.0, True)])
def test_efficiency_is_above_1_by_the_rule_of_decision(rate: float, is_told: bool) -> None:
    """One per cent is none, however narrow the interval."""
    single = dict(enumerate((100.0, 100.1, 99.9)))
    fast = {turn: rate / 100 * each for turn, each in single.items()}
    case = case_of(runs(make_experiment(Single), single), runs(make_experiment(AllReduce, 2), fast))
    assert bool([*above_one_lines(case)]) is is_told


def test_one_of_many_efficiencies_that_chance_lifts_above_1_is_no_warning() -> None:
    """Its own interval lies above 1; corrected for their number, none does."""
    single = dict(enumerate((100.0, 100.0, 100.0)))
    lucky = dict(enumerate((107.0, 110.0, 106.0)))
    usual = dict(enumerate((97.0, 99.0, 95.0)))
    own = runs(make_experiment(Single), single), runs(make_experiment(AllReduce, 1), lucky)
    assert [*above_one_lines(case_of(*own))]
    many = [
        runs(make_experiment(strategy, n), {turn: n * each for turn, each in usual.items()})
        for strategy in (AllReduce, SynchronousServers)
        for n in (2, 4, 8)
    ]
    assert not [*above_one_lines(case_of(*own, *many))]


def test_doubts_about_numbers_end_the_screen() -> None:
    """What was lost on the way, and what cannot be."""
    lossy = losses()["stalls with a known loss"]
    fast = runs(make_experiment(AllReduce, 2), times(3.0))
    above = case_of(runs(make_experiment(Single), times(1.0)), fast)
    for case, lines in ((lossy, loss_lines(lossy)), (above, [*above_one_lines(above)])):
        report = CaseReport(case=case, verdict=verdict(case), figures=(), traces={})
        assert lines
        assert verdict_text(report, alone=True).endswith("\n".join(["", *lines]))


FLAT, WARMING = "flat", "warming up"


@pytest.mark.parametrize(
    ("labels", "told"),
    [
        ([FLAT, WARMING, FLAT], ""),
        ([None, None, WARMING], ""),
        ([FLAT, WARMING, WARMING], "all-reduce (2 warming up)"),
        (["unsteady", WARMING, None], "all-reduce (1 warming up, 1 unsteady)"),
    ],
)
def test_a_verdict_on_launches_with_a_trend_says_so(labels: list[str | None], told: str) -> None:
    """On the first page; the table of steps has the labels of all points."""
    own = make_experiment(AllReduce, 2)
    table, records = table_of([*runs(make_experiment(), times(1.0)), *runs(own, times(2.0))])
    left = iter(labels)
    steps = [next(left) if each == own.strategy.kind else FLAT for each in table["strategy"]]
    steadiness = pd.Series(steps, index=table.index, dtype="string")
    (case,) = make_cases(table.assign(steadiness=steadiness), records)
    lines = [line for line in verdict(case).doubts if "did not keep one speed" in line]
    assert lines == [
        f"2 of 3 launches of {each} did not keep one speed: in longer runs, rates may differ."
        for each in filter(None, [told])
    ]
    counted = report_table(case, "steps")["steps of launches"]
    assert counted.iloc[0] == "3 flat"
    assert told[12:-1] in counted.iloc[1]
    (case,) = make_cases(table.assign(steadiness=steadiness, stalled_s=0.1), records)
    assert not any("did not keep one speed" in line for line in verdict(case).doubts)


def test_the_setting_next_to_the_fastest_is_asked_for_a_trend_too() -> None:
    """Beside the default, which the fastest one is told against first."""
    packs = {size: make_experiment(AllReduce, 2, bytes_per_pack=size) for size in (0, 10, 20)}
    rates = {0: times(1.0), 10: times(2.0), 20: times(2.2)}
    table, records = table_of([run for size in packs for run in runs(packs[size], rates[size])])
    steadiness = table["bytes_per_pack"].map({10: WARMING}).fillna(FLAT).astype("string")
    (case,) = make_cases(table.assign(steadiness=steadiness), records)
    assert ", the next" in verdict(case).headline
    (line,) = [line for line in verdict(case).doubts if "did not keep one speed" in line]
    assert line.startswith("3 of 3 launches of all-reduce, ")


def test_humps_and_stalls_tell_of_how_many_runs_they_are_known() -> None:
    table, records = table_of(runs(make_experiment(AllReduce, 2), times(1.0)))
    known: dict[str, Any] = {"hump_s": [0.1, 0.1, None], "second_hump_s": [0.3, None, None]}
    known |= {"stalled_s": [0.02, 0.0, None], "mean_step_s": 0.1}
    (case,) = make_cases(table.assign(**known), records)
    (humps,) = humps_lines(case)
    assert "in 1 of 3 runs (known of 2): 1 of" in humps
    (stalls,) = loss_lines(case)
    assert stalls.startswith(
        "1 of 3 runs stalled for more than 3% of their time (known of 2; up to"
    )


def test_launches_of_too_few_steps_for_a_label_say_so() -> None:
    table, records = table_of(runs(make_experiment(), times(1.0)))
    (case,) = make_cases(table.assign(raw_timings=True), records)
    told = report_table(case, "steps")["steps of launches"]
    assert told.tolist() == ["3 with too few steps to tell"]


def test_jobs_are_named_where_points_are_of_different_ones() -> None:
    """Where all points are of the same jobs, the table has no such column."""
    single = [of_job(job, first, 100.0) for job, first in (("7", 0), ("8", 1000))]
    for jobs in (("7", "8"), ("8",)):
        own = [runs(AWAY_RING, {n: 200.0}, job_id=job) for n, job in enumerate(jobs)]
        found = case_of(*single, *own)
        (told,) = [line for line in verdict(found).warnings if "was measured in 2 jobs" in line]
        assert ("because of the jobs alone" in told) is ("jobs" in report_table(found, "results"))
        assert ("because of the jobs alone" in told) is (jobs == ("8",))


@pytest.mark.parametrize(("asked", "told"), [(None, 1), ("10.0.0.0/24", 0)])
def test_interfaces_of_one_subnet_are_of_one_network(asked: str | None, told: int) -> None:
    case = circumstances()["other interfaces in other runs"]
    records = [record for point in case.points for record in point.records]
    records = [
        run(replace(each.experiment, interface=asked), 100.0, each.repetition, hosts=each.hosts)
        for each in records
    ]
    lines = verdict(case_of(records)).warnings
    assert sum(line.startswith("Runs used different interfaces") for line in lines) == told


def test_the_base_of_jobs_is_called_what_it_is() -> None:
    own = make_experiment(NoCommunication, 2, launcher="slurm", spread=Spread(workers_per_host=2))
    tasks = tuple(
        replace(each, cores=(0, 1)) for each in tasks_on({f"worker:{n}": "n0" for n in range(2)})
    )
    records = [run(own, 100.0, turn, job_id=f"{turn}", tasks=tasks) for turn in range(2)]
    (told,) = [line for line in verdict(case_of(records)).warnings if " in 2 jobs: " in line]
    assert told.startswith("The base (no_communication, 2 workers) was measured in 2 jobs: ")


def test_drift_is_a_warning_on_the_first_page(tmp_path: Path) -> None:
    drifting = {0: 100.0, 1: 97.0, 2: 93.0, 3: 90.0}
    text = reported(tmp_path, runs(make_experiment(Single), drifting))
    first_page = text.split("<nav")[0]
    assert (
        "The machine may have drifted: by a line through its launches, single was 0.90x ["
        in first_page
    )
