"""Sides meet at equal hosts, those of servers counted; then at equal workers and at equal cost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.data.cases import Case, make_cases
from analysis.data.prices import Prices, stated_prices
from analysis.report.pages.case_pages import side_rows
from analysis.report.verdict import verdict
from analysis.stats.comparisons import comparisons
from analysis.stats.rivals import Kind
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.layout import (
    hosts_of_workers,
    hosts_without_workers,
    num_hosts,
    room_for_workers,
)
from ps_allreduce.point.resources import LayoutKind, Spread
from ps_allreduce.point.sides import Basis
from ps_allreduce.point.strategies import (
    AllReduce,
    AnyStrategy,
    AsynchronousServers,
    Hybrid,
    Single,
    StockAllReduce,
    StockServers,
    SynchronousServers,
)
from ps_allreduce.point.strategies.stated import Embeddings
from ps_allreduce.point.wire import Wire
from ps_allreduce.record.records import RunRecord
from tests.analysis.builders import invoke, runs, save_all, table_of, times
from tests.examples import fast, spread_experiments
from tests.fakes import LOOKING_UP, make_experiment, make_host
from tests.goldens import golden

#: Per hour: servers on hosts for a quarter of the price.
PRICES = Prices(host=2.0, ps_host=0.5)
EQUAL_PRICES = Prices(host=2.0, ps_host=2.0)

Launches = Mapping[Experiment, Mapping[int, float | None]]


ON_HOSTS: Mapping[str, Any] = {"launcher": "ssh", "spread": Spread()}
ROWS: Mapping[str, Any] = {"wire": Wire(), "embeddings": Embeddings.SPARSE}


def reduced(workers: int, **changes: Any) -> Experiment:
    return make_experiment(AllReduce, workers, **ON_HOSTS, **changes)


def served(workers: int, num_ps: int, layout: LayoutKind = LayoutKind.DEDICATED) -> Experiment:
    return make_experiment(
        SynchronousServers,
        workers,
        num_ps=num_ps,
        layout=layout,
        launcher="ssh",
        spread=Spread(),
    )


def cheap(workers: int, num_ps: int) -> Experiment:
    """Servers on hosts that are named for them."""
    return served(workers, num_ps, LayoutKind.PS_HOSTS)


def on_their_hosts(own: Experiment, rates: Mapping[int, float | None]) -> list[RunRecord]:
    return runs(own, rates, hosts=tuple(make_host(f"n{n}") for n in range(num_hosts(own))))


def case_of(points: Launches, prices: Prices | None = None) -> Case:
    """Runs on as many hosts as their points need."""
    records = [run for own, rates in points.items() for run in on_their_hosts(own, rates)]
    (case,) = make_cases(*table_of(records), prices=prices)
    return case


@fast
@given(spread_experiments())
def test_points_with_the_same_room_need_the_same_hosts(experiment: Experiment) -> None:
    room = room_for_workers(experiment)
    workers, others = hosts_of_workers(experiment), hosts_without_workers(experiment)
    assert workers + others == num_hosts(experiment)
    rival = make_experiment(AllReduce, room, spread=experiment.spread)
    assert num_hosts(rival) == num_hosts(experiment)
    assert room_for_workers(rival) == room


@st.composite
def measured(draw: st.DrawFn) -> dict[Experiment, dict[int, float | None]]:
    """Both sides at some sizes, with few or enough launches."""
    rings = [reduced(workers) for workers in draw(st.sets(st.integers(1, 6), min_size=1))]
    sizes = draw(
        st.sets(
            st.tuples(st.integers(1, 4), st.integers(1, 3), st.sampled_from(LayoutKind)),
            min_size=1,
            max_size=4,
        )
    )
    launches = st.integers(1, 3)
    return {own: times(1.0, draw(launches)) for own in (*rings, *(served(*each) for each in sizes))}


@settings(max_examples=12, deadline=None)
@given(measured())
def test_the_headline_is_on_the_most_equal_hosts_with_enough_launches(
    points: dict[Experiment, dict[int, float | None]],
) -> None:
    main = comparisons(case_of(points)).main
    sizes: list[dict[int, int]] = [{}, {}]
    for own, rates in points.items():
        side = sizes[own.strategy.uses_servers]
        room = room_for_workers(own)
        side[room] = max(side.get(room, 0), len(rates))
    common = sizes[0].keys() & sizes[1].keys()
    if not common:
        assert main is None or main.basis is Basis.WORKERS
        return
    assert main is not None
    assert main.basis is Basis.HOSTS
    enough = [room for room in common if min(side[room] for side in sizes) >= 3]
    there = {room_for_workers(p.experiment) for side in main.sides for p in side.points}
    assert there == {max(enough or common)}
    assert len({num_hosts(p.experiment) for side in main.sides for p in side.points}) == 1


BESIDE_WORKERS = LayoutKind.COLOCATED
BESIDE = served(2, 2, BESIDE_WORKERS)

SIDES: Mapping[str, tuple[Mapping[Experiment, float], Prices | None]] = {
    "hosts of servers count, and equal workers come next": (
        {reduced(2): 1.0, reduced(4): 1.9, served(2, 2): 1.2},
        None,
    ),
    "servers beside workers": ({reduced(2): 2.0, BESIDE: 1.0}, None),
    "one host": ({replace(own, spread=None): 1.0 for own in (reduced(2), BESIDE)}, None),
    "no equal hosts": ({reduced(2): 2.0, served(2, 1): 1.0}, None),
    "the dearest that cost the same": (
        {reduced(2): 1.0, reduced(4): 1.8, cheap(2, 2): 1.2, cheap(3, 4): 1.9},
        PRICES,
    ),
    "the nearest costs": ({reduced(2): 1.0, reduced(4): 1.8, cheap(2, 2): 1.2}, PRICES),
    "the nearest costs are those of equal hosts": ({reduced(4): 1.8, cheap(3, 1): 1.2}, PRICES),
    "no host is named for servers": ({reduced(4): 1.8, served(2, 2): 1.2}, EQUAL_PRICES),
}


def test_where_sides_meet_is_told() -> None:
    texts = []
    for title, (points, prices) in SIDES.items():
        said = verdict(case_of({own: times(rate) for own, rate in points.items()}, prices))
        money = [line for line in said.details if line.startswith("For a unit of money")]
        texts.append("\n".join([f"# {title}", said.headline, *said.otherwise, *money, ""]))
    golden.check({"sentences/equal_hosts.txt": "\n".join(texts)})


@pytest.mark.parametrize("failing", ["all-reduce", "servers"])
def test_where_a_side_failed_on_more_hosts_no_verdict_is_told(failing: str) -> None:
    failed: dict[int, float | None] = dict.fromkeys(range(3))
    rates = {each: failed if each == failing else times(3.0) for each in ("all-reduce", "servers")}
    larger = {reduced(4): rates["all-reduce"], served(4, 4, BESIDE_WORKERS): rates["servers"]}
    points: Launches = {reduced(2): times(2.0), BESIDE: times(1.0), **larger}
    said = verdict(case_of(points))
    assert " at 2 workers " in said.headline
    assert said.otherwise == (
        "No verdict on the two sides at 4 workers: not all that is compared has three launches "
        "there.",
    )


def test_a_hybrid_or_plain_tensorflow_that_failed_on_more_hosts_is_told() -> None:
    factors: Mapping[type[AnyStrategy], float] = {
        AllReduce: 2.0,
        SynchronousServers: 1.0,
        Hybrid: 0.5,
        StockAllReduce: 0.5,
    }
    points: dict[Experiment, dict[int, float | None]] = {}
    for workers, strategy in product((2, 4), factors):
        settings = {} if strategy.as_shipped else dict(ROWS)
        settings |= {"num_ps": workers} if strategy.uses_servers else {}
        own = make_experiment(strategy, workers, workload=LOOKING_UP, **ON_HOSTS, **settings)
        is_failing = workers == 4 and strategy in (Hybrid, StockAllReduce)
        points[own] = dict.fromkeys(range(3)) if is_failing else times(factors[strategy])
    said = verdict(case_of(points))
    failed = "at 4 workers: not all that is compared has three launches there."
    assert said.otherwise == (f"No verdict on the hybrid {failed}",)
    (line,) = said.stock
    assert line.endswith(f" 3 launches each. No verdict {failed}")


def test_plain_tensorflow_meets_the_suite_on_hosts_of_the_main_comparison() -> None:
    """More hosts, on which no all-reduce was measured, would be another size."""
    points = {reduced(4): times(1.0), served(4, 4, LayoutKind.COLOCATED): times(1.0)}
    for strategy, factor in ((AsynchronousServers, 2.0), (StockServers, 1.0)):
        for count, layout in ((4, LayoutKind.COLOCATED), (2, LayoutKind.DEDICATED)):
            settings = {"num_ps": count, "layout": layout}
            points[make_experiment(strategy, 4, **settings, **ON_HOSTS)] = times(factor)
    (row,) = comparisons(case_of(points)).of(Kind.STOCK)
    assert [point.common("num_hosts") for point in row.points] == [4, 4]


def test_a_setting_of_plain_tensorflow_with_too_few_launches_on_as_many_hosts_is_named() -> None:
    settings = {"num_ps": 4, "layout": LayoutKind.COLOCATED}
    ours, lost = (
        make_experiment(kind, 4, **settings, **ON_HOSTS)
        for kind in (AsynchronousServers, StockServers)
    )
    dedicated = {"num_ps": 2, "layout": LayoutKind.DEDICATED}
    stock = make_experiment(StockServers, 2, **dedicated, **ON_HOSTS)
    launches = {ours: times(2.0), stock: times(1.0), lost: times(3.0, 1)}
    case = case_of(
        {reduced(4): times(1.0), served(4, 4, LayoutKind.COLOCATED): times(1.0)} | launches
    )
    (line,) = verdict(case).stock
    label = {point.experiment: point.setting.label for point in case.points}[lost]
    assert line.endswith(f"Passed over, with too few launches: {label} (1).")


def test_the_best_on_equal_hosts_may_have_its_servers_anywhere() -> None:
    beside = served(4, 4, LayoutKind.COLOCATED)
    points = {reduced(4): times(1.0), beside: times(1.5), served(3, 1): times(2.0)}
    main = comparisons(case_of(points)).main
    assert main is not None
    assert [point.num_workers for point in main.points] == [4, 3]
    assert {point.num_workers for point in main.sides[1].points} == {3, 4}


def test_a_single_worker_is_held_against_several() -> None:
    alone = make_experiment(Single, launcher="ssh", spread=Spread())
    points = {alone: times(3.0), reduced(4): times(1.0), served(2, 2): times(0.9)}
    case = case_of(points)
    assert ": their 4 and 2 workers do not pay here." in verdict(case).network
    workers = side_rows(case).set_index("compared")["workers"]
    assert workers[Kind.MAIN] == "4 and 2"
    assert workers[Kind.SINGLE] == "1, 4 and 2"
    beside = served(1, 1, LayoutKind.COLOCATED)
    one = case_of({alone: times(3.0), reduced(1): times(1.0), beside: times(0.9)})
    assert comparisons(one).main is not None
    assert comparisons(one).of(Kind.SINGLE) == []


@fast
@given(st.sampled_from([None, 2.0, 3.0]), st.sampled_from([None, Spread()]))
def test_prices_that_tell_nothing_new_add_no_comparison(
    price: float | None, spread: Spread | None
) -> None:
    ring, beside = (
        make_experiment(kind, 2, spread=spread) for kind in (AllReduce, SynchronousServers)
    )
    case = case_of({ring: times(2.0), beside: times(1.0)}, stated_prices(price, price))
    assert comparisons(case).of(Kind.WORKERS, Kind.COST) == []


def test_dedicated_hosts_cost_as_much_as_others() -> None:
    assert PRICES.per_hour(served(2, 2)) == PRICES.per_hour(reduced(4)) == 8.0
    assert PRICES.per_hour(cheap(2, 2)) == 5.0


def test_the_report_is_told_prices_that_no_record_holds(tmp_path: Path) -> None:
    points = {reduced(2): times(1.0), reduced(3): times(1.8), cheap(2, 1): times(1.2)}
    save_all(tmp_path, *(on_their_hosts(own, rates) for own, rates in points.items()))
    told_before = invoke("report", str(tmp_path))
    assert "equal cost" not in told_before
    assert "At equal workers: " in " ".join(told_before.split())
    priced = invoke("report", "--host-price", "2", "--ps-host-price", "0.5", str(tmp_path))
    assert "At the nearest costs, which are not equal" in " ".join(priced.split())
    assert "A host costs 2 per hour" in (tmp_path / "report.html").read_text()
    assert invoke("report", str(tmp_path)) == told_before
