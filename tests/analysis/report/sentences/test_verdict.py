from __future__ import annotations

from collections.abc import Mapping

import pytest

from analysis.report.sentences.verdict import verdict
from analysis.stats.comparisons import pairs_of
from analysis.stats.decision import Outcome
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.placement import Policy
from ps_allreduce.point.resources import Spread
from ps_allreduce.point.strategies import (
    AllReduce,
    AsynchronousServers,
    NoCommunication,
    Single,
    StockAllReduce,
    StockServers,
    SynchronousServers,
)
from ps_allreduce.point.wire import Wire, WireType
from ps_allreduce.point.workload import EmulatedCompute, Workload
from ps_allreduce.record.records import Status
from tests.analysis.builders import case_of, run, runs, said, times, with_wire
from tests.fakes import make_experiment

RING = make_experiment(AllReduce, 2)
SYNC = make_experiment(SynchronousServers, 2)
EVEN = make_experiment(SynchronousServers, 2, placement=Policy.PARTITIONED)
ASYNC = make_experiment(AsynchronousServers, 2)


def test_allreduce_is_faster_than_the_best_of_two_settings() -> None:
    found = said({RING: times(1.8), SYNC: times(0.5), EVEN: times(1.0)})
    assert found.headline == (
        "All-reduce is 1.80x [1.80, 1.80] faster than the best parameter-server setting "
        "(ps_sync, partitioned) at 2 workers (1 host, tcp), 3 launches each."
    )
    assert (
        "Per worker core: all-reduce 90 images/s (2 worker cores), synchronous parameter servers "
        "50 images/s (2 worker cores)."
    ) in found.details
    assert "Both sides use the same 2 cores in all, servers included." in found.details
    (choice,) = [line for line in found.details if line.startswith("Best settings")]
    assert "ps_sync, partitioned of 2 settings." in choice


@pytest.mark.parametrize(
    ("points", "headline"),
    [
        pytest.param(
            {RING: times(1.0), SYNC: times(2.0)},
            "The parameter-server setting (ps_sync, round_robin) is 2.00x [2.00, 2.00] faster than "
            "all-reduce at 2 workers (1 host, tcp), 3 launches each.",
            id="the faster side comes first",
        ),
        pytest.param(
            {RING: {0: 100.0, 1: 120.0, 2: 90.0}, SYNC: {0: 101.0, 1: 95.0, 2: 110.0}},
            "Undecided between all-reduce and ps_sync, round_robin at 2 workers (1 host, tcp), 3 "
            "launches each (ratio 1.0",
            id="undecided",
        ),
        pytest.param(
            {RING: times(1.01), SYNC: times(1.0)},
            "Equal within 3 % are all-reduce and ps_sync, round_robin at 2 workers (1 host, tcp), "
            "3 launches each (ratio 1.01x [1.01, 1.01]).",
            id="equal",
        ),
        pytest.param(
            {RING: times(1.8, 2), SYNC: times(1.0, 2)},
            "No verdict: it takes three launches of each, and there are 2 of all-reduce and 2 of "
            "ps_sync, round_robin at 2 workers (1 host, tcp).",
            id="two launches",
        ),
        pytest.param(
            {RING: times(1.8, 1), SYNC: times(1.0, 1), EVEN: times(0.9, 1)},
            "No verdict: it takes three launches of each, and there are 1 of all-reduce and 1 of "
            "ps_sync, round_robin at 2 workers",
            id="one launch",
        ),
        pytest.param(
            {RING: times(1.0)},
            "No verdict: of all-reduce one setting was measured; a comparison takes another one, "
            "or runs of synchronous parameter servers.",
            id="one setting of one side",
        ),
        pytest.param(
            {
                RING: times(1.0),
                with_wire(make_experiment(AllReduce, 4), Wire(in_flight=1)): times(1.0),
            },
            "No verdict: there are no runs of synchronous parameter servers.",
            id="one side is missing",
        ),
        pytest.param(
            {make_experiment(Single): times(1.0)},
            "No verdict: there are no runs of all-reduce or synchronous parameter servers.",
            id="both sides are missing",
        ),
        pytest.param(
            {RING: times(1.0), make_experiment(SynchronousServers, 4): times(1.0)},
            "No verdict: all-reduce and synchronous parameter servers were not measured at the "
            "same number of workers.",
            id="sides never meet",
        ),
    ],
)
def test_headlines(points: Mapping[Experiment, dict[int, float | None]], headline: str) -> None:
    assert said(points).headline.startswith(headline)


def test_undecided_comes_with_the_launches_that_would_decide() -> None:
    noisy: dict[int, float | None] = {0: 110.0, 1: 100.0, 2: 120.0}
    headline = said({RING: noisy, SYNC: times(1.0)}).headline
    assert headline.startswith("Undecided")
    assert headline.endswith(": about 6 more launches would decide.")


def test_a_side_without_a_good_run_is_named_with_its_reason() -> None:
    found = said({RING: times(1.0), SYNC: {0: None, 1: None, 2: None}})
    assert found.headline == "No verdict: no run of synchronous parameter servers ended well."
    assert found.warnings[-1] == (
        "Of 6 attempts 3 ended well: 3 failed. Commonest reason (3 of 3): worker:1 ended with "
        "signal 9"
    )


def test_the_largest_number_of_workers_with_enough_launches_decides() -> None:
    found = said(
        {
            RING: times(2.0),
            SYNC: times(1.0),
            make_experiment(AllReduce, 4): times(9.0, 1),
            make_experiment(SynchronousServers, 4): times(1.0, 1),
        }
    )
    assert "at 2 workers" in found.headline
    assert "Too few launches for a verdict at more workers (4)." in found.details


def test_tensorflow_as_it_ships_is_never_the_headline_and_has_a_sentence_of_its_own() -> None:
    shipped = {
        make_experiment(StockAllReduce, 2): times(6.0),
        make_experiment(StockServers, 2): times(2.0),
    }
    found = said({RING: times(1.0), SYNC: times(0.5), **shipped})
    assert "All-reduce is 2.00x" in found.headline
    (line,) = [line for line in found.details if "shipped" in line]
    assert line.startswith("As shipped, different training: TensorFlow's parameter servers are")
    assert "TensorFlow's all-reduce as shipped is 3.00x [3.00, 3.00] faster than" in line
    alone = said(shipped)
    assert alone.headline.startswith("No verdict")


STOCK_RING, STOCK_PS = make_experiment(StockAllReduce, 2), make_experiment(StockServers, 2)


@pytest.mark.parametrize(
    ("points", "sentence"),
    [
        pytest.param(
            {RING: times(1.5), STOCK_RING: times(1.0), STOCK_PS: times(9.0)},
            "Against plain TensorFlow, both synchronous: all-reduce is 1.50x [1.50, 1.50] faster "
            "than stock_allreduce at 2 workers (1 host), 3 launches each.",
            id="the suite is faster",
        ),
        pytest.param(
            {ASYNC: times(1.0), STOCK_PS: times(1.05), STOCK_RING: times(0.1)},
            "Against plain TensorFlow, both asynchronous: plain TensorFlow (stock_ps, round_robin) "
            "is 1.05x [1.05, 1.05] faster here than ps_async, round_robin at 2 workers (1 host), "
            "3 launches each.",
            id="plain TensorFlow is faster",
        ),
        pytest.param(
            {RING: times(1.01), STOCK_RING: times(1.0)},
            "Against plain TensorFlow, both synchronous: Equal within 3 % are all-reduce and "
            "TensorFlow's all-reduce as shipped at 2 workers (1 host), 3 launches each (ratio "
            "1.01x [1.01, 1.01]).",
            id="equal",
        ),
        pytest.param(
            {with_wire(RING, Wire(gradients=WireType.FLOAT16)): times(2.0), STOCK_RING: times(1.0)},
            "Against plain TensorFlow, both synchronous, gradients in float16 and float32: ",
            id="another format of gradients",
        ),
    ],
)
def test_the_suite_is_held_against_plain_tensorflow_that_trains_alike(
    points: Mapping[Experiment, dict[int, float | None]], sentence: str
) -> None:
    found = said(points)
    first = "plain TensorFlow (" in sentence  # where it wins, the headline begins with it
    assert found.headline.startswith(sentence) is first
    assert [line.startswith(sentence) for line in found.stock] == [True] * (not first)


def test_a_doubt_about_plain_tensorflow_comes_with_what_was_measured() -> None:
    lost: dict[int, float | None] = {3: None, 4: None, 5: None}
    (line,) = said({RING: times(1.5), STOCK_RING: times(1.0) | lost}).stock
    assert "both synchronous: No verdict on all-reduce and TensorFlow's all-reduce as sh" in line
    assert line.endswith("are a selection. Measured: all-reduce at 1.50x [1.50, 1.50] of stock.")


def test_each_kind_of_training_is_held_against_its_own() -> None:
    found = said({RING: times(2.0), SYNC: times(1.0), ASYNC: times(4.0)})
    assert found.stock == ()
    every = {RING: 2.0, SYNC: 1.0, ASYNC: 4.0, STOCK_RING: 1.0, STOCK_PS: 2.0}
    ring, servers = said({own: times(factor) for own, factor in every.items()}).stock
    assert "both synchronous: all-reduce is 2.00x" in ring
    assert "both asynchronous: ps_async, round_robin is 2.00x" in servers


def test_asynchronous_training_has_a_sentence_of_its_own() -> None:
    found = said({RING: times(1.0), SYNC: times(0.5), ASYNC: times(3.0)})
    assert "ps_async" not in found.headline
    (line,) = [line for line in found.details if line.startswith("Asynchronous")]
    assert line.startswith("Asynchronous training is not the same training")
    assert "is 3.00x [3.00, 3.00] faster than all-reduce" in line


def test_what_a_case_is_about_is_told() -> None:
    local = said({RING: times(1.0)})
    assert any("over loopback" in line for line in local.warnings)
    far = said({make_experiment(AllReduce, 2, launcher="slurm", spread=Spread()): times(1.0)})
    assert not any("over loopback" in line for line in far.warnings)
    load = Workload(emulated=EmulatedCompute(forward_s=0.01, backward_s=0.02))
    emulated = said({make_experiment(AllReduce, 2, workload=load): times(1.0)})
    assert any(line.startswith("Compute is emulated") for line in emulated.warnings)


@pytest.mark.parametrize(
    ("cores", "sentence"),
    [((3,), "all-reduce 2, ps_sync, round_robin 3 with those"), ((3, 4), "Launches differ")],
)
def test_different_cores_in_all_are_told(cores: tuple[int, ...], sentence: str) -> None:
    servers = [
        run(SYNC, rate, key, total_cores=cores[key % len(cores)])
        for key, rate in times(0.5).items()
    ]
    found = verdict(case_of(runs(RING, times(1.0)), servers))
    assert any(sentence in line for line in found.details)


def test_counts_of_all_statuses_and_the_commonest_reason() -> None:
    bad = runs(RING, {3: None, 4: None}, reason="slow", status=Status.TIMED_OUT)
    bad += runs(RING, {5: None}, reason="loss is not finite", status=Status.INVALID)
    found = verdict(case_of(runs(RING, times(1.0)), bad))
    assert found.warnings[-1] == (
        "Of 6 attempts 3 ended well: 2 timed out, 1 invalid. Commonest reason (2 of 3): slow"
    )


def test_pairs_leave_out_asynchronous_and_single_points() -> None:
    case = case_of(
        runs(RING, times(2.0)),
        runs(SYNC, times(1.0)),
        runs(EVEN, times(1.0)),
        runs(ASYNC, times(1.0)),
        runs(make_experiment(Single), times(1.0)),
        runs(make_experiment(NoCommunication, 2), times(1.0)),
    )
    found = pairs_of(case)
    assert [(pair.first.name, pair.second.name) for pair in found] == [
        ("ps_sync, round_robin", "ps_sync, partitioned"),
        ("ps_sync, round_robin", "all-reduce"),
        ("ps_sync, partitioned", "all-reduce"),
    ]
    outcomes = [Outcome.EQUAL, Outcome.SLOWER, Outcome.SLOWER]
    assert [pair.decision.outcome for pair in found] == outcomes
    # Both need three launches.
    assert pairs_of(case_of(runs(RING, times(1.0)), runs(SYNC, times(1.0, 2)))) == []
