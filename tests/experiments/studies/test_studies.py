"""The points of studies with other settings than those of which goldens hold them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from analysis.predict.calibration import setting_of
from experiments.studies.catalogue import STUDIES
from experiments.studies.learning import LEAST, MOST, seconds_of, seeds_wanted, spread_of
from experiments.studies.scope import Scale, Threads, check_servers
from experiments.studies.wire_study import NO_COMPUTE, STUDY
from experiments.sweep.definition import Choices
from experiments.sweep.sweep import OVERHEAD_S, PROFILES, Sweep, expected_duration
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.network import EmulatedNetwork
from ps_allreduce.point.placement import Policy, VariableSpec
from ps_allreduce.point.resources import Device, LayoutKind, Spread
from ps_allreduce.point.strategies import (
    AllReduce,
    AsynchronousServers,
    StockAllReduce,
    StockServers,
    SynchronousServers,
)
from ps_allreduce.point.strategies.base import Servers
from ps_allreduce.point.strategies.stated import Embeddings, StrategySettings
from ps_allreduce.point.wire import Collective
from ps_allreduce.point.workload import EmulatedCompute, Workload
from ps_allreduce.record.choices import rate_question
from tests.analysis.learners import MODEL, trained
from tests.experiments.studies.scopes import make_scope
from tests.fakes import LOOKING_UP, TWO_LAYERS

QUICK = PROFILES["quick"]


def points_of(name: str, workers: tuple[int, ...] = (1, 2), **changes: Any) -> list[Experiment]:
    return list(STUDIES[name].points(make_scope(workers, **changes)))


def served(points: Sequence[Experiment]) -> list[tuple[int, int, str]]:
    """Workers, servers and placement of every synchronous point with servers."""
    return [
        (point.num_workers, point.num_ps, str(point.strategy.servers.placement))
        for point in points
        if isinstance(point.strategy, SynchronousServers)
    ]


#: But those that need emulated links, train tables, or learn until a model says that it has.
ANYWHERE = sorted(STUDIES.keys() - {"embeddings", "foresight", "incast", "learning", "wire"})


@pytest.mark.parametrize("name", ANYWHERE)
def test_a_study_has_no_point_twice(name: str) -> None:
    points = points_of(name)
    assert len({point.experiment_id for point in points}) == len(points)


#: Others compare whole settings, or have bases of their own.
WITH_BASES = sorted({*ANYWHERE} - {"pcad", "osu", "claix", "storage", "calibrate"})


@pytest.mark.parametrize("name", [name for name in WITH_BASES if name != "tuning-sweep"])
def test_all_points_of_a_study_use_the_same_resources_and_workload(name: str) -> None:
    points = points_of(name)
    assert (
        len({(point.resources.cores_per_worker, point.resources.device) for point in points}) == 1
    )
    assert len({(point.workload, point.measurement) for point in points}) == 1
    # TensorFlow as it ships chooses its threads itself.
    suite = [point for point in points if not point.strategy.as_shipped]
    assert len({point.resources for point in suite}) == 1


def test_links_limit_a_part_of_what_calibrates() -> None:
    unlimited = EmulatedNetwork(num_hosts=4, bits_per_s=None)
    chosen = Choices(answers={rate_question(Workload().model.name): 40e6})
    points = points_of("calibrate", (1, 4), launcher="emulated", spread=Spread(), network=unlimited)
    assert {p.network for p in points} == {unlimited}
    points = points_of(
        "calibrate", (1, 4), launcher="emulated", spread=Spread(), network=unlimited, choices=chosen
    )
    slow = [p for p in points if p.network and p.network.bits_per_s == 10e6]
    assert [p.strategy.kind for p in slow] == ["allreduce", "ps_sync", "ps_async"]
    assert {p.num_workers for p in slow} == {4}
    brief = [p for p in points_of("calibrate", (1, 4)) if p.workload != Workload()]
    assert [(p.strategy.kind, p.num_workers) for p in brief][:2] == [
        ("single", 1),
        ("allreduce", 4),
    ]


def test_of_tensorflow_as_it_ships_only_dealing_can_be_stated() -> None:
    stated = StrategySettings(collective=Collective.RING, steps_per_dispatch=8)
    found = [p.strategy for p in points_of("compare", settings=stated, brief=True)]
    assert [each for each in found if each.as_shipped] == [
        StockServers(servers=Servers(num_ps=2), steps_per_dispatch=8),
        StockAllReduce(),
    ]


def test_compare_of_a_recommender_has_rows_on_every_side_and_whole_tables_beside() -> None:
    points = points_of("compare", (1, 4), workloads=(LOOKING_UP,), brief=True, host_cores=8)
    told = [(str(p.strategy), p.strategy.is_sparse) for p in points if p.num_workers == 4]
    assert Counter(told) == {
        ("allreduce", True): 1,
        ("allreduce", False): 1,
        ("ps_async", True): 1,
        ("ps_sync", True): 2,
        ("hybrid", True): 1,
        ("stock_ps", False): 1,
        ("stock_ps", True): 1,
        ("stock_allreduce", False): 1,
    }
    stated = StrategySettings(embeddings=Embeddings.DENSE)
    dense = points_of("compare", (1, 4), workloads=(LOOKING_UP,), brief=True, settings=stated)
    assert {p.strategy.is_sparse for p in dense if not p.strategy.as_shipped} == {False}


@pytest.mark.parametrize(("uneven", "expected"), [(True, "partitioned"), (False, "round_robin")])
def test_compare_of_a_recommender_balances_what_is_no_table(uneven: bool, expected: str) -> None:
    table = VariableSpec(
        name="table", shape=(9999, 8), dtype="float32", trainable=True, is_table=True
    )
    others = [
        VariableSpec(name=f"dense{index}", shape=(size,), dtype="float32", trainable=True)
        for index, size in enumerate((10, 900, 20, 30) if uneven else (2,))
    ]
    points = points_of(
        "compare", (4,), workloads=(LOOKING_UP,), brief=True, describe=lambda _: [table, *others]
    )
    servers = [
        p.strategy.servers
        for p in points
        if p.strategy.places_variables and not p.strategy.as_shipped
    ]
    assert [each and each.placement for each in servers] == [Policy(expected)] * 3


def test_compare_cuts_where_that_is_best() -> None:
    points = points_of("compare", settings=StrategySettings(split_bytes=4000))
    assert served(points)[-1] == (2, 2, "partitioned")
    cut = {p.strategy.servers.split_bytes for p in points if p.strategy.servers}
    assert cut == {None, 4000}


def test_compare_shows_another_placement_where_round_robin_is_best() -> None:
    even = [
        VariableSpec(name=f"v{index}", shape=(10,), dtype="float32", trainable=True)
        for index in range(4)
    ]
    points = points_of("compare", describe=lambda _: even)
    assert served(points)[-1] == (2, 2, "largest_first")


@pytest.mark.parametrize("name", ["compare", "ladder", "timeline"])
def test_tensorflow_as_it_ships_gets_no_more_servers_than_variables(name: str) -> None:
    """It cuts none; two variables are those of the smallest model."""

    def describe(_: Workload) -> Sequence[VariableSpec]:
        return TWO_LAYERS[:2]

    points = points_of(name, (1, 4), brief=True, describe=describe)
    found = {p.strategy.servers for p in points if isinstance(p.strategy, StockServers)}
    assert found == {Servers(num_ps=2)}
    check_servers(points, describe)


def test_compare_keeps_a_stated_number_of_servers() -> None:
    points = points_of("compare", settings=StrategySettings(num_ps=3))
    assert {(workers, num_ps) for workers, num_ps, _ in served(points)} == {(1, 3), (2, 3)}
    assert len(served(points)) == 4


@pytest.mark.parametrize(
    ("cores", "emulated", "bases"),
    [
        pytest.param(2, None, [(1, "single"), (4, "no_communication")], id="4 workers on 2 cores"),
        pytest.param(4, None, [(1, "single")], id="a core each"),
        pytest.param(
            2, EmulatedCompute(forward_s=0.1, backward_s=0.1), [(1, "single")], id="accelerators"
        ),
    ],
)
def test_a_brief_study_has_a_fair_base(
    cores: int, emulated: EmulatedCompute | None, bases: list[tuple[int, str]]
) -> None:
    points = points_of(
        "compare",
        scale=Scale(workers=(1, 4), cores_per_worker=1),
        brief=True,
        workloads=(Workload(emulated=emulated),),
        network=EmulatedNetwork(num_hosts=4, bits_per_s=1e8),
        spread=Spread(),
        launcher="emulated",
        host_cores=cores,
    )
    found = [(p.num_workers, p.strategy.kind) for p in points if not p.strategy.communicates()]
    assert found == bases


@pytest.mark.parametrize("stated", [(1, 4), (2, 4)])
def test_learning_takes_all_stated_workers_and_tunes_each_number(stated: tuple[int, ...]) -> None:
    several = {workers for workers in stated if workers > 1}
    links = EmulatedNetwork(num_hosts=4, bits_per_s=None)
    scope = make_scope(stated, brief=True, workloads=(Workload(model=MODEL),), network=links)
    search = STUDIES["learning"].search
    assert search is not None
    for points in (STUDIES["learning"].points(scope), search.points(scope)):
        assert len(titles := [point.run_title for point in points]) == len({*titles})
    assert {point.num_workers for point in search.points(scope)} == several
    # Nobody trains on the hosts beyond, so a slow link there would slow down nobody.
    for point in search.points(scope):
        assert point.network is not None
        assert point.network.slow_host == point.num_workers - 1


@pytest.mark.parametrize("name", ["ps-sweep", "allreduce-sweep", "placement-sweep"])
def test_a_quick_sweep_of_one_side_ends_within_ten_minutes_on_four_hosts(name: str) -> None:
    points = points_of(name, (1, 2, 4), spread=Spread(), measurement=QUICK.measurement)
    assert {point.num_workers for point in points} == {1, 2, 4}
    assert {p.num_ps for p in points} >= ({2, 4} if name != "allreduce-sweep" else {0})
    sweep = Sweep(name=name, points=tuple(points), profile=QUICK, seed=1)
    assert expected_duration(sweep, sweep.runs(), OVERHEAD_S).likely_s < 600


@pytest.mark.parametrize(("stated", "numbers"), [(None, {1, 2, 4}), (3, {3})])
def test_ps_sweep_goes_to_as_many_servers_as_workers_unless_stated(
    stated: int | None, numbers: set[int]
) -> None:
    points = points_of("ps-sweep", (1, 2, 4), settings=StrategySettings(num_ps=stated))
    assert {num_ps for _, num_ps, _ in served(points)} == numbers


@pytest.mark.parametrize("name", ["compare", "ps-sweep", "placement-sweep"])
def test_dedicated_servers_are_passed_on(name: str) -> None:
    points = points_of(name, settings=StrategySettings(layout=LayoutKind.DEDICATED))
    assert {p.strategy.servers.layout for p in points if p.strategy.servers} == {
        LayoutKind.DEDICATED
    }


@pytest.mark.parametrize("name", ["ps-sweep", "placement-sweep"])
def test_with_more_servers_than_variables_only_partitioned_ones_are_placed(name: str) -> None:
    points = points_of(name, settings=StrategySettings(num_ps=5))
    assert {p.strategy.servers.placement for p in points if p.strategy.servers} == {
        Policy.PARTITIONED
    }


@pytest.mark.parametrize("name", ANYWHERE)
@pytest.mark.parametrize("device", Device)
def test_all_points_of_a_study_are_on_the_device(name: str, device: Device) -> None:
    assert {p.resources.device for p in points_of(name, device=device)} == {device}


def test_what_a_study_chooses_is_chosen_once() -> None:
    choices = Choices()
    before = points_of("compare", choices=choices)
    assert choices.answers == {
        "most balanced placement of SmallCNN on 2 servers": "partitioned",
        "split_bytes of SmallCNN on 2 servers": 2740,
    }
    choices.answers["most balanced placement of SmallCNN on 2 servers"] = "greedy"
    assert served(points_of("compare", choices=choices))[-1] == (2, 2, "greedy")
    assert served(before)[-1] == (2, 2, "partitioned")


@pytest.mark.parametrize("name", STUDIES)
def test_a_study_says_what_it_is(name: str) -> None:
    assert re.search(r"Axes: .*Method: .*Cost: .*It should show ", STUDIES[name].about, re.DOTALL)


def test_each_side_has_its_threads_and_by_default_one_less_than_cores() -> None:
    def threads_of(threads: Threads) -> dict[str, int]:
        scale = Scale(workers=(2,), cores_per_worker=4, threads=threads)
        points = STUDIES["compare"].points(make_scope(scale=scale))
        return {p.strategy.kind: p.resources.threads_per_worker for p in points}

    kinds = ("single", "no_communication", "allreduce", "horovod", "ps_async", "ps_sync")
    as_shipped = {"stock_ps": 4, "stock_allreduce": 4}
    assert threads_of(Threads()) == dict.fromkeys(kinds, 3) | as_shipped
    stated = threads_of(Threads(allreduce=3, ps=2))
    assert stated == {k: 2 if k.startswith("ps_") else 3 for k in kinds} | as_shipped


@pytest.mark.parametrize("num_ps", [None, 1, 3])
def test_compare_measures_all_reduce_on_the_hosts_of_dedicated_servers_too(
    num_ps: int | None,
) -> None:
    dedicated = StrategySettings(layout=LayoutKind.DEDICATED, num_ps=num_ps)
    points = points_of("compare", settings=dedicated, spread=Spread(), launcher="ssh")
    reduced = {p.num_workers for p in points if isinstance(p.strategy, AllReduce)}
    apart = {p.num_workers + p.num_ps for p in points if p.num_ps}
    assert reduced == {1, 2} | apart
    stock = {p.num_workers for p in points if isinstance(p.strategy, StockAllReduce)}
    assert stock == {2, max(reduced)}
    # On one machine servers take no hosts.
    here = points_of("compare", settings=dedicated)
    assert {p.num_workers for p in here if isinstance(p.strategy, AllReduce)} == {1, 2}


NETWORK = EmulatedNetwork(num_hosts=8, bits_per_s=None)


def points(workers: tuple[int, ...] = (1, 2, 4, 8)) -> list[Experiment]:
    scope = make_scope(workers=workers, launcher="emulated", spread=Spread(), network=NETWORK)
    return list(STUDY.points(scope))


def overlaps(point: Experiment) -> bool:
    emulated = point.workload.emulated
    return emulated is not None and emulated != NO_COMPUTE


def test_an_accelerator_computes_for_as_long_as_the_links_need() -> None:
    (point,) = (p for p in points() if overlaps(p) and p.num_ps)
    emulated = point.workload.emulated
    assert emulated is not None
    assert emulated.backward_s == pytest.approx(2 * emulated.forward_s)
    # A host receives three quarters of 25 MB for its server, and as much for its worker.
    assert emulated.forward_s + emulated.backward_s == pytest.approx(1.5 * 25e6 * 8 / 800e6)


def test_few_seeds_decide_between_what_hardly_varies_and_more_where_it_varies_more() -> None:
    wanted = [seeds_wanted(spread) for spread in (0.01, 0.12, 0.15, 1.0)]
    assert wanted == sorted(wanted)
    assert (wanted[0], wanted[-1]) == (LEAST, MOST)
    assert LEAST < wanted[2] < MOST


def test_the_spread_is_that_of_ratios_of_equal_seeds() -> None:
    draw = np.random.default_rng(0)
    settings, seeds, noise = 200, np.exp(draw.standard_normal(3)), 0.1
    made = {
        str(number): {
            seed: float(each * np.exp(number % 7 + noise * draw.standard_normal()))
            for seed, each in enumerate(seeds)
        }
        for number in range(settings)
    }
    assert spread_of(made) == pytest.approx(2**0.5 * noise, rel=0.1)
    assert spread_of({"one": made["1"]}) is None


def test_trainings_that_miss_the_target_have_no_seconds() -> None:
    records = [
        *trained(SynchronousServers, [10.0, 11.0, 12.0], 100.0),
        *trained(AsynchronousServers, [5.0, None, 6.0], 100.0),
    ]
    synchronous, asynchronous = seconds_of(records).values()
    assert synchronous == {1: 10.0, 2: 11.0, 3: 12.0}
    assert asynchronous == {1: 5.0, 3: 6.0}
    assert spread_of(seconds_of(records)) is None


def test_calibrating_launches_of_servers_are_learned_from_together() -> None:
    sizes = (900, 500, 300, 200, 100, 50, 20, 10)
    variables = tuple(
        VariableSpec(name=str(size), shape=(size,), dtype="float32", trainable=True)
        for size in sizes
    )
    scope = make_scope((2, 8), describe=lambda _: variables, spread=Spread())
    served = [p for p in STUDIES["calibrate"].points(scope) if p.num_ps]
    assert {p.num_workers for p in served} == {2, 8}
    batches = {p.workload.batch_per_worker for p in served}
    settings = {setting_of(p) for p in served if p.workload.batch_per_worker == max(batches)}
    assert {p.strategy.servers.placement for p in served if p.strategy.servers} == {
        Policy.PARTITIONED
    }
    assert len(settings) == 2
