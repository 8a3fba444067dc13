"""Sweeps of one side: which settings contend, what each is held against, and which leads."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest

from analysis.data.cases import Case
from analysis.planning.choice import choose
from analysis.report.circumstances import share_lines
from analysis.report.pages.case_pages import unclaimed_lines
from analysis.report.pages.first_page import key_numbers
from analysis.report.verdict import verdict
from analysis.stats.comparisons import comparisons, pairs_of
from analysis.stats.decision import Outcome
from analysis.stats.doubts import doubt_about
from analysis.stats.findings import finding, leading
from analysis.stats.points import point_table
from analysis.stats.rivals import Side, against_defaults, contenders
from ps_allreduce.point.placement import Policy
from ps_allreduce.point.sides import ALLREDUCE
from ps_allreduce.point.strategies import (
    AllReduce,
    AnyStrategy,
    AsynchronousServers,
    Horovod,
    Single,
    StockServers,
    SynchronousServers,
)
from ps_allreduce.point.wire import Wire, WireType
from ps_allreduce.record.records import RunRecord
from tests.analysis.builders import case_of, changed, runs, save_all, times, with_wire
from tests.fakes import make_experiment
from tests.goldens import golden

ROUND, EVEN = Policy.ROUND_ROBIN, Policy.PARTITIONED

#: Factors by servers and placement.
RATES = {(1, ROUND): 1.0, (2, ROUND): 1.5, (2, EVEN): 2.0}


def served(launches: int = 3, **factors: float) -> Case:
    """Synchronous and asynchronous servers at one and two workers."""
    return case_of(
        *(
            runs(
                make_experiment(strategy, workers, num_ps=count, placement=policy),
                times(factors.get(f"{policy}_{count}", factor) * share, launches),
            )
            for strategy, share in ((SynchronousServers, 1.0), (AsynchronousServers, 3.0))
            for workers in (1, 2)
            for (count, policy), factor in RATES.items()
        )
    )


def test_synchronous_and_asynchronous_settings_contend_apart_at_the_most_workers() -> None:
    found = [*contenders(served())]
    assert [{point.setting.strategy for point in each} for each in found] == [
        {"ps_sync"},
        {"ps_async"},
    ]
    assert {point.num_workers for each in found for point in each} == {2}
    assert {len(each) for each in found} == {3}


def test_a_setting_is_held_against_round_robin_with_as_many_servers() -> None:
    case = served()
    pair = leading(comparisons(case), next(contenders(case)))
    assert pair is not None
    assert (pair.first.best.setting.label, pair.second.best.setting.label) == (
        "ps_sync, partitioned, 2 ps",
        "ps_sync, round_robin, 2 ps",
    )
    assert pair.decision.outcome is Outcome.FASTER
    assert pair.decision.ratio == pytest.approx(2.0 / 1.5)
    planned = [each for each in pairs_of(case) if each.decision.planned]
    assert [{*each.points} for each in planned] == [{*pair.points}]


def test_nothing_is_called_the_default_where_the_default_placement_was_not_measured() -> None:
    factors = {(1, ROUND): 1.0, (2, EVEN): 2.0, (4, EVEN): 3.0}
    case = case_of(
        *(
            runs(make_experiment(num_ps=count, placement=policy), times(factor))
            for (count, policy), factor in factors.items()
        )
    )
    said = verdict(case).headline
    assert ", ps_sync, partitioned, 4 ps is the fastest with " in said
    assert "default" not in said
    assert against_defaults(next(contenders(case))) == []


CASES = {
    "faster than the default": served(),
    "the default is the fastest": served(round_robin_1=4.0),
    "the default is no slower": served(round_robin_2=1.99),
    "the runner-up is no slower": served(round_robin_1=1.99),
    "too few launches": served(launches=2),
    "too few launches of one setting": case_of(
        *(
            runs(make_experiment(num_ps=count, placement=policy), times(factor, launches))
            for (count, policy), factor in RATES.items()
            for launches in [1 if policy is EVEN else 3]
        )
    ),
    "plain TensorFlow is faster": case_of(
        runs(make_experiment(StockServers), times(9.0)),
        *(
            runs(make_experiment(AsynchronousServers, placement=policy), times(factor))
            for policy, factor in ((ROUND, 1.0), (EVEN, 2.0))
        ),
    ),
}


def test_the_headline_says_which_setting_is_fastest_and_whether_it_beats_the_default() -> None:
    told = {title: verdict(case) for title, case in CASES.items()}
    texts = [
        "\n".join([f"# {title}", each.headline, *each.otherwise, ""])
        for title, each in told.items()
    ]
    golden.check({"sentences/contenders.txt": "\n".join(texts)})


@pytest.mark.parametrize("failed", [0, 3])
def test_nothing_is_called_the_default_where_that_was_not_measured_or_failed(failed: int) -> None:
    ring, rates = make_experiment(AllReduce, 4, bytes_per_pack=None), {1: times(2.0), 2: times(1.0)}
    others = [runs(with_wire(ring, Wire(in_flight=n)), each) for n, each in rates.items()]
    said = verdict(case_of(runs(ring, dict.fromkeys(range(failed))), *others)).headline
    assert "all-reduce, 1 in flight is the fastest" in said
    assert "default" not in said
    told = verdict(case_of(runs(ring, times(3.0)), *others)).headline
    assert "all-reduce, 4 in flight (the default) is the fastest" in told


def test_of_several_defaults_none_is_called_the_default() -> None:
    assert "default" not in verdict(CASES["faster than the default"]).headline
    assert not any("default" in each.meaning for each in key_numbers(served()))
    said = verdict(CASES["plain TensorFlow is faster"]).headline
    assert "faster than ps_async, round_robin (the default)" in said


def test_settings_that_are_decided_to_be_slower_are_not_called_open() -> None:
    said = verdict(CASES["the runner-up is no slower"])
    opening = "2 {} settings at 2 workers are equal within 3 %; 1 other is slower than another one."
    assert said.headline.startswith(opening.format("synchronous"))
    assert opening.format("asynchronous") in said.otherwise[0]


def test_of_two_settings_of_one_side_the_one_that_failed_is_missing() -> None:
    round_robin, even = (make_experiment(placement=policy) for policy in (ROUND, EVEN))
    said = verdict(case_of(runs(round_robin, times(1.0)), runs(even, {0: None, 1: None})))
    assert said.headline == (
        "No verdict: of synchronous parameter servers one setting has launches that ended well; a "
        "comparison takes another one, or runs of all-reduce."
    )


def test_a_setting_that_another_one_beats_is_not_called_open() -> None:
    """The leader beats two others of its own noise, and its rival a third one."""
    noises = {True: (100.0, 150.0, 70.0, 120.0, 95.0), False: (90.0, 80.0, 140.0, 95.0, 125.0)}
    shares = ((True, 1.0), (True, 0.94), (True, 0.92), (False, 1.0), (False, 0.94))
    settings = [
        make_experiment(num_ps=count, placement=policy)
        for count, policy in product((1, 2, 4), (ROUND, EVEN))
    ]
    case = case_of(
        *(
            runs(own, {n: rate * share * (1 + n / 999) for n, rate in enumerate(noises[is_own])})
            for own, (is_own, share) in zip(settings, shares, strict=False)
        )
    )
    opening = "It is not decided which of 2 synchronous settings at 2 workers is fastest; 3 others"
    headline = verdict(case).headline
    assert headline.startswith(f"{opening} are slower than another one.")
    # A setting is not both slower and left open.
    assert re.search(r"; whether it is faster than ps_sync, \w+, 2 ps is not decided", headline)


def test_settings_that_are_all_decided_to_be_equal_are_not_called_open() -> None:
    sizes = (None, 0, 500_000)
    alike = {size: make_experiment(AllReduce, 2, bytes_per_pack=size) for size in sizes}
    slow = make_experiment(AllReduce, 2, bytes_per_pack=2_000_000)
    equal = {turn: 100.0 + 0.1 * (turn % 3) for turn in range(8)}
    said = verdict(
        case_of(
            *(runs(own, equal) for own in alike.values()), runs(slow, dict.fromkeys(equal, 50.0))
        )
    ).headline
    assert said.startswith("3 synchronous settings at 2 workers are equal within 3 % (all-reduce, ")
    assert "); 1 other is slower than another one. " in said


def test_an_asynchronous_setting_without_a_launch_is_told_beside_the_fastest() -> None:
    points = [
        make_experiment(AsynchronousServers, 2, num_ps=count, placement=policy)
        for count, policy in ((1, ROUND), (2, ROUND), (2, EVEN))
    ]
    synchronous = [make_experiment(SynchronousServers, 2, placement=each) for each in (ROUND, EVEN)]
    failed: dict[int, float | None] = dict.fromkeys(range(3))
    case = case_of(
        *(runs(own, times(1.0)) for own in synchronous),
        *(runs(own, times(share)) for own, share in zip(points[:2], (1.0, 2.0), strict=True)),
        runs(points[2], failed),
    )
    (said,) = verdict(case).otherwise
    assert "Of 2 asynchronous settings at 2 workers, " in said
    label = {point.experiment: point.setting.label for point in case.points}[points[2]]
    assert said.endswith(f"Passed over, with too few launches: {label} (0).")


def test_more_workers_at_which_all_settings_but_one_failed_are_told() -> None:
    failed: dict[int, float | None] = dict.fromkeys(range(3))
    larger = {
        policy: make_experiment(num_workers=4, num_ps=2, placement=policy)
        for policy in (ROUND, EVEN)
    }
    case = case_of(
        *(
            runs(make_experiment(num_ps=2, placement=policy), times(factor))
            for policy, factor in ((ROUND, 1.0), (EVEN, 2.0))
        ),
        runs(larger[ROUND], times(2.0)),
        runs(larger[EVEN], failed),
    )
    said = verdict(case)
    assert "Of 2 synchronous settings at 2 workers, " in said.headline
    assert said.otherwise == (
        "No verdict on synchronous settings at 4 workers: not all that is compared has three "
        "launches there.",
    )


@pytest.mark.parametrize("rates", [(100.1,), (110.0, 60.0, 170.0)])
def test_a_default_that_leads_by_chance_is_not_called_the_fastest(rates: tuple[float, ...]) -> None:
    case = case_of(
        runs(make_experiment(SynchronousServers, 2, num_ps=2), dict(enumerate(rates))),
        runs(
            make_experiment(SynchronousServers, 2, num_ps=2, placement=EVEN),
            dict.fromkeys(range(len(rates)), 100.0),
        ),
    )
    said = verdict(case).headline
    assert said.startswith("It is not decided which of 2 synchronous settings at 2 workers is ")
    assert " no other " not in said


def test_the_pair_that_takes_most_launches_says_when_it_is_known_which_setting_is_fastest() -> None:
    """Not the slowest one, of which fewer launches would tell."""
    rates = {1: (101.0, 100.0, 102.0), 2: (97.0, 105.0, 100.0), 4: (83.0, 92.0, 93.0)}
    case = case_of(
        *(
            runs(make_experiment(SynchronousServers, 2, num_ps=count), dict(enumerate(own)))
            for count, own in rates.items()
        )
    )
    missing = {
        tuple(point.experiment.num_ps for point in pair.points): pair.decision.missing
        for pair in pairs_of(case)
    }
    assert (missing[1, 2] or 200) > (missing[1, 4] or 200)
    said = verdict(case).headline
    assert (
        "whether it is faster than ps_sync, round_robin, 2 ps, the hardest to decide, is undecided"
        in said
    )
    assert f"about {missing[1, 2]} more launches of each side may decide" in said


def test_nobody_contends_where_both_sides_were_measured_or_one_setting_only() -> None:
    ring = runs(make_experiment(AllReduce, 2), times(1.0))
    servers = runs(make_experiment(SynchronousServers, 2), times(1.0))
    for case in (case_of(ring), case_of(ring, servers)):
        assert not [*contenders(case)]


def test_a_setting_of_which_one_worker_made_most_steps_is_not_ranked() -> None:
    near = make_experiment(AsynchronousServers, 4, num_ps=1, placement=ROUND)
    even = [
        make_experiment(AsynchronousServers, 4, num_ps=2, placement=policy)
        for policy in (ROUND, EVEN)
    ]
    dealt = [with_steps(each, (39, 1, 1, 1)) for each in runs(near, times(9.0))]
    single = runs(make_experiment(Single), times(1.0))
    case = case_of(dealt, *(runs(each, times(1.0)) for each in even), single)
    claimed = point_table(case).set_index("setting")["efficiency_single"]
    assert claimed.notna().to_list() == [True, False, True, True]
    assert unclaimed_lines(case) == [
        "Efficiency (base: a single worker) is not claimed where one worker made far more steps "
        "than others."
    ]
    (alone,) = contenders(case)
    assert {point.experiment for point in alone} == {*even}
    nearest, other = case.points[0], case.points[1]
    assert (
        "one worker made far more steps than others in ps_async, round_robin, 1 ps"
        in doubt_about(case, nearest, other, (9.0, 9.0, 9.0))
    )
    (line,) = share_lines(case)
    assert "(ps_async, round_robin, 1 ps, 4 workers: up to 93% of all)" in line
    assert (
        "4 workers as slow as the slowest one would make about 86 images/s; 900 were made." in line
    )
    assert line.endswith(". Bounded staleness (--staleness 1) may help."), "all share one host"
    several = changed(near, steps_per_dispatch=4)
    (line,) = share_lines(
        case_of([with_steps(each, (39, 1, 1, 1)) for each in runs(several, times(1.0))])
    )
    assert line.endswith(". Bounded staleness (--staleness 4) may help."), "fewer are refused"
    bounded = runs(changed(near, staleness=1), times(1.0))
    (line,) = share_lines(case_of(dealt, bounded))
    assert "may help" not in line, "a bound was measured beside it"
    assert not share_lines(case_of(*(runs(each, times(1.0)) for each in even)))
    waiting = runs(make_experiment(AllReduce, 4), times(1.0))
    # Both ends of a window cut into steps, so that it holds fewer whole ones of some workers.
    assert not share_lines(case_of([with_steps(each, (4, 1, 1, 1)) for each in waiting]))


def with_steps(record: RunRecord, steps: tuple[int, ...]) -> RunRecord:
    """The record with so many whole steps of each worker, at the same rate."""
    metrics = record.metrics
    assert metrics is not None
    window_s = sum(steps) * metrics.window_s / sum(metrics.steps_per_worker)
    return replace(record, metrics=replace(metrics, steps_per_worker=steps, window_s=window_s))


#: Rates of three launches by servers and placement: the highest mean is noise.
RATES_SWEPT = {
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
        for (count, policy), rates in RATES_SWEPT.items()
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
    assert f"); 1 other is slower than another one. {name}, partitioned, 2 ps made " in told
    assert f"faster than {name}, round_robin, 1 ps, 3 launches each; whether it is faster" in told
    assert "whether it is faster than the others is not decided. The mean rate of" in told
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
    assert told.startswith(
        "A synchronous parameter-server setting (ps_sync, partitioned, 2 ps) is "
    )
    main = comparisons(case).main
    assert main is not None
    low = main.decision.inverse().low
    assert low is not None
    assert low > 1


def test_a_side_that_begins_with_a_vowel_has_its_article() -> None:
    (point,) = case_of(runs(make_experiment(Horovod, 2), times(1.0))).points
    side = Side(points=(point, point), best=point, kind=ALLREDUCE, is_highest=False)
    assert side.title == f"an all-reduce setting ({point.setting.label})"


def test_the_setting_that_is_taken_home_is_the_one_that_leads(tmp_path: Path) -> None:
    save_all(tmp_path / "ps-sweep", swept())
    taken = choose(tmp_path, "best", None).record.experiment
    assert (taken.num_ps, taken.strategy.columns()["placement"]) == (2, "partitioned")


def test_contenders_are_of_one_format_and_say_so_beside_another_one() -> None:
    ring, brief = (make_experiment(AllReduce, 2, wire=Wire(in_flight=n)) for n in (4, 1))
    half = make_experiment(AllReduce, 2, wire=Wire(gradients=WireType.FLOAT16))
    alike = [runs(ring, times(1.5)), runs(brief, times(1.0))]
    assert verdict(case_of(*alike)).headline.startswith(
        "Of 2 synchronous settings at 2 workers, all-reduce"
    )
    assert verdict(case_of(*alike, runs(half, times(2.0)))).headline.startswith(
        "Of 2 synchronous settings at 2 workers (tcp in float32), all-reduce"
    )


def test_a_single_worker_that_is_equal_is_not_told_as_faster() -> None:
    case = case_of(
        runs(make_experiment(Single), times(1.01)),
        runs(make_experiment(AllReduce, 2), times(1.0)),
        runs(make_experiment(SynchronousServers, 2), times(0.5)),
    )
    said = "A single worker is equal within 3 % (1.01x [1.01, 1.01]) to the better of "
    assert said in verdict(case).network
