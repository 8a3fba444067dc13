"""Sparse gradients, which the suite makes dense, are named with their price; stock may win."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from analysis.data.cases import Case
from analysis.derive.fastest_step import flows_of
from analysis.planning.choice import choose
from analysis.report.pages.first_page import key_numbers
from analysis.report.pages.page_parts import CaseReport
from analysis.report.screen import verdict_text
from analysis.report.verdict import verdict
from ps_allreduce.point.models.trained import OwnModel
from ps_allreduce.point.optimizers import Adam, Optimizer, Sgd
from ps_allreduce.point.resources import Spread
from ps_allreduce.point.strategies import (
    AllReduce,
    AnyStrategy,
    Hybrid,
    Single,
    StockAllReduce,
    StockServers,
    SynchronousServers,
)
from ps_allreduce.point.strategies.stated import Embeddings
from ps_allreduce.point.wire import Wire, WireType
from ps_allreduce.point.workload import Workload
from ps_allreduce.record.variables import SparseGradient
from tests.analysis.builders import case_of, on_own_hosts, runs, save_all, tasks_on, times
from tests.analysis.report.test_sentences import TABLES, TOWERS, two_towers
from tests.fakes import LOOKING_UP, make_experiment


@pytest.mark.parametrize(("found", "known"), [((), True), (TABLES, False)])
def test_no_bound_of_dense_traffic_is_told(found: tuple[SparseGradient, ...], known: bool) -> None:
    by_kind = {p.setting.strategy: p for p in case_of(two_towers(sparse=found)).points}
    for name in ("bound_s", "fraction_of_bound"):
        assert by_kind["allreduce"].launches[name].notna().all() == known
    assert by_kind["allreduce"].launches["network_s"].notna().all(), "all rows are sent"
    shipped = by_kind["stock_allreduce"].counting[0]
    assert bool(flows_of(shipped)) == known, "nobody knows what it sends of them"


def test_plain_tensorflow_is_taken_home_where_it_is_decided_to_be_faster(tmp_path: Path) -> None:
    save_all(tmp_path / "compare", two_towers())
    taken = choose(tmp_path, "best", None).record.experiment.strategy
    assert isinstance(taken, StockAllReduce)
    noisy = runs(
        make_experiment(StockAllReduce, 2, spread=Spread()),
        {0: 1500.0, 1: 9000.0, 2: 2500.0},
        **on_own_hosts(2, 1e8),
    )
    few = {kind: rate for kind, rate in TOWERS.items() if kind is not StockAllReduce}
    save_all(tmp_path / "undecided/compare", two_towers(few), noisy)
    taken = choose(tmp_path / "undecided", "best", None).record.experiment.strategy
    assert not taken.as_shipped


@pytest.mark.parametrize("measured", [(Single,), (StockAllReduce, StockServers)])
def test_nothing_is_said_to_be_made_dense_where_the_suite_exchanges_nothing(
    measured: tuple[type[AnyStrategy], ...],
) -> None:
    own = [runs(make_experiment(each, 2), times(1.0), sparse=TABLES) for each in measured]
    assert "dense" not in verdict(case_of(*own)).headline
    shared = runs(make_experiment(AllReduce, 2), times(1.0), sparse=TABLES)
    assert "the suite makes them dense" in verdict(case_of(*own, shared)).headline


def test_gradients_in_another_format_are_not_said_to_be_exchanged_in_float32() -> None:
    halved = make_experiment(AllReduce, 2, wire=Wire(gradients=WireType.BFLOAT16))
    said = verdict(case_of(runs(halved, times(1.0), sparse=TABLES))).headline
    assert "of float32" in said
    assert "exchanges" not in said


def rows_of(rates: dict[Any, float]) -> Case:
    """A recommender of which all sides send rows."""
    where = on_own_hosts(2, 1e8)
    servers = {"tasks": (*where["tasks"], *tasks_on({"ps:0": "n0", "ps:1": "n1"}))}
    own = {kind: make_experiment(kind, 2, spread=Spread(), **ROWS) for kind in rates}
    return case_of(
        *(
            runs(own[kind], times(rate / 100), **where | (servers if own[kind].num_ps else {}))
            for kind, rate in rates.items()
        )
    )


ROWS: dict[str, Any] = {"workload": LOOKING_UP, "wire": Wire(), "embeddings": Embeddings.SPARSE}


def test_a_hybrid_that_beats_both_sides_is_told_and_the_next_taken_home(
    tmp_path: Path,
) -> None:
    rates = {AllReduce: 1000.0, SynchronousServers: 2000.0, Hybrid: 3000.0}
    case = rows_of(rates)
    headline = verdict(case).headline
    assert headline.startswith("The hybrid is 3.00x")
    assert "The hybrid is 1.50x" in headline
    assert "The synchronous parameter-server setting (ps_sync, round_robin) is 2.00x" in headline
    beside = {each.meaning for each in key_numbers(case)}
    assert beside >= {"rows/s: hybrid, 2 workers", "ratio: hybrid over ps_sync, round_robin"}
    slower = verdict(rows_of(rates | {Hybrid: 1500.0})).headline
    assert slower.startswith(
        "The synchronous parameter-server setting (ps_sync, round_robin) is 2.00x"
    )
    assert "is 1.33x [1.33, 1.33] faster than the hybrid" in slower
    save_all(tmp_path / "compare", [record for point in case.points for record in point.records])
    taken = choose(tmp_path, "best", None).record.experiment.strategy
    assert isinstance(taken, SynchronousServers)


def test_the_use_of_links_is_of_named_settings_beside_a_hybrid() -> None:
    sides: dict[Any, float] = {AllReduce: 1000.0, SynchronousServers: 2000.0}
    alone, beside = (verdict(rows_of(each)).network for each in (sides, sides | {Hybrid: 3000.0}))
    assert " with " not in alone
    assert " with all-reduce and ps_sync, round_robin (" in beside


@pytest.mark.parametrize(("optimizer", "told"), [(Adam(), 1), (Sgd(), 0)])
def test_another_training_of_rows_is_told(optimizer: Optimizer, told: int) -> None:
    own = OwnModel(name="mine.py:build", module="m", function="f", digest="d")
    point = make_experiment(
        AllReduce,
        2,
        bytes_per_pack=None,
        embeddings=Embeddings.SPARSE,
        workload=Workload(model=own, optimizer=optimizer),
    )
    headline = verdict(case_of(runs(point, times(1.0), sparse=TABLES))).headline
    assert headline.count("With sparse embeddings, adam changes the rows of a step and no") == told


def test_the_screen_says_it_first() -> None:
    case: Case = case_of(two_towers())
    report = CaseReport(case=case, verdict=verdict(case), figures=(), traces={})
    assert verdict_text(report, alone=True).startswith("Against plain TensorFlow")
    assert "ratio: stock_allreduce over all-reduce" in {n.meaning for n in key_numbers(case)}
