"""The gate for a model: what is compared with what, and what is said of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from experiments import surroundings
from experiments.suite import gate_arms
from experiments.suite.gate import notes
from experiments.suite.gate_arms import LIMIT, arms
from launchers.run.conclude import LaunchedRun
from launchers.settings import LauncherSettings
from ps_allreduce.exchange.stacking import RowRule
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.inputs.data import Digits, Synthetic
from ps_allreduce.point.models.trained import OwnModel
from ps_allreduce.point.optimizers import Adam, AdamW, Momentum, Optimizer, Sgd
from ps_allreduce.point.placement import Policy, VariableSpec, make_plan
from ps_allreduce.point.strategies import (
    STRATEGIES,
    AllReduce,
    AsynchronousServers,
    Hybrid,
    Single,
    SynchronousServers,
)
from ps_allreduce.point.strategies.stated import Altered, Embeddings
from ps_allreduce.point.strategies.stock import Stock
from ps_allreduce.point.workload import Workload
from ps_allreduce.record.records import Status
from ps_allreduce.record.variables import RunWeights, save_weights
from tests.experiments.conftest import Machine, run
from tests.experiments.studies.scopes import make_scope
from tests.fakes import TWO_LAYERS, FakeLauncher, bad_run, fit, ok_run

#: What a model with dropout and batch norm has besides.
NOT_TRAINED = (
    VariableSpec(name="drop/seed_generator_state", shape=(2,), dtype="uint32", trainable=False),
    VariableSpec(name="norm/moving_mean", shape=(80,), dtype="float32", trainable=False),
)


@dataclass(slots=True)
class WeighingLauncher(FakeLauncher):
    """A launcher whose runs leave weights: the reference's, and an error as large as a test says.

    Attributes:
        error: of a point's weights, relative to the distance trained.
        change: what becomes of a point's run.
    """

    error: Callable[[Experiment], float] = lambda _: 1e-6
    change: Callable[[Experiment, LaunchedRun], LaunchedRun] = lambda _, launched: launched

    def launch(
        self, experiment: Experiment, *, weights: Path | None = None, **_: Any
    ) -> LaunchedRun:
        self.launched.append(experiment)
        launched = self.change(experiment, fit(ok_run(), experiment))
        if weights is not None and launched.status is Status.OK:
            shapes = [spec.shape for spec in TWO_LAYERS]
            end = 1.0 + (0 if experiment.strategy == Single() else self.error(experiment))
            start, final = ([np.full(s, x, np.float32) for s in shapes] for x in (0.0, end))
            save_weights(weights, RunWeights(initial=start, final=final))
        return launched


@pytest.fixture
def weighing(
    launcher: FakeLauncher, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> WeighingLauncher:
    made = WeighingLauncher(variables=(*TWO_LAYERS, *NOT_TRAINED))

    def launcher_of(settings: LauncherSettings) -> WeighingLauncher:
        return made

    monkeypatch.setattr(surroundings, "launcher_of", launcher_of)
    monkeypatch.setattr(gate_arms, "has_module", lambda _: True)
    return made


def gate(*words: str) -> tuple[int, dict[str, Any]]:
    """The exit status, and what was kept."""
    status = run("gate", *words)
    (path,) = Path("results/gate").glob("*.json")
    return status, json.loads(path.read_text())


def test_every_strategy_and_placement_agrees_with_a_single_worker_of_the_same_batches(
    weighing: WeighingLauncher, capsys: pytest.CaptureFixture[str]
) -> None:
    status, kept = gate()
    references = [point for point in weighing.launched if point.strategy == Single()]
    points = [point for point in weighing.launched if point.strategy != Single()]
    assert (status, len(kept["arms"]), len(references)) == (0, len(points), 2)
    assert {type(point.strategy) for point in points} == {
        each for each in STRATEGIES.values() if each.communicates() and each is not Hybrid
    }
    for strategy in (SynchronousServers, AsynchronousServers):
        placed = [p.strategy.servers for p in points if isinstance(p.strategy, strategy)]
        assert {servers.placement for servers in placed if servers} == set(Policy)
    assert {p.strategy.packed_bytes for p in points if isinstance(p.strategy, AllReduce)} == {
        None,
        0,
    }
    assert any(point.strategy.host_aggregation for point in points)
    plain = [p.strategy.altered for p in points if isinstance(p.strategy, Stock)]
    assert plain == [*Altered] * 2
    for point in points:
        assert point.num_workers == (2 if point.strategy.synchronous else 1)
    both, alone = (point.workload for point in references)
    assert (both.dealt_to, both.accumulation) == (2, 2)
    assert (alone.dealt_to, alone.accumulation) == (None, 1)
    assert {point.workload for point in points} == {alone}
    assert (alone.deterministic, alone.data) == (True, Synthetic())
    assert f"{len(points)} of {len(points)} settings agree" in capsys.readouterr().out


def test_a_strategy_that_is_not_installed_is_left_out(
    weighing: WeighingLauncher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gate_arms, "has_module", lambda _: False)
    assert gate()[0] == 0
    assert all(point.strategy.module is None for point in weighing.launched)


def test_some_variable_is_cut_whatever_the_model(weighing: WeighingLauncher) -> None:
    gate("--num-ps", "3")
    (cut,) = {
        point.strategy.servers
        for point in weighing.launched
        if point.strategy.servers and point.strategy.servers.placement is Policy.PARTITIONED
    }
    assert cut.split_bytes is not None
    plan = make_plan(Policy.PARTITIONED, TWO_LAYERS, 3, cut.split_bytes)
    assert any(shard.axis is not None for shard in plan.shards)


@pytest.mark.parametrize(("share", "status"), [(0.5, 0), (2.0, 1)])
def test_one_setting_that_is_too_far_fails_the_gate(
    share: float, status: int, weighing: WeighingLauncher, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = "allreduce, 2 workers, one pack"
    weighing.error = lambda point: share * LIMIT if "one pack" in point.title else 0.0
    found, kept = gate()
    assert found == status
    (arm,) = (arm for arm in kept["arms"] if arm["name"] == wrong)
    assert arm["agreement"]["distance"] == pytest.approx(share * LIMIT, rel=1e-2)
    assert arm["agreement"]["furthest"] == "dense/kernel"
    assert kept["provenance"]["fingerprint"] == "aaaaaaaa"
    shown = [line for line in capsys.readouterr().out.splitlines() if wrong in line]
    assert ["DIFFERS" in line for line in shown] == [status == 1]


def test_a_setting_that_cannot_be_trained_fails_the_gate_with_its_reason(
    weighing: WeighingLauncher,
) -> None:
    def change(point: Experiment, launched: LaunchedRun) -> LaunchedRun:
        return bad_run(Status.FAILED) if isinstance(point.strategy, AllReduce) else launched

    weighing.change = change
    status, kept = gate()
    reasons = [arm["reason"] for arm in kept["arms"] if arm["reason"]]
    assert (status, reasons) == (1, ["worker:1 was killed by SIGKILL"] * 2)


def test_without_a_reference_there_is_no_gate(
    weighing: WeighingLauncher, capsys: pytest.CaptureFixture[str]
) -> None:
    weighing.change = lambda _, launched: replace(
        launched, status=Status.FAILED, reason="it fell over"
    )
    assert run("gate") == 1
    assert "a single worker cannot be trained: it fell over" in capsys.readouterr().err
    assert len(weighing.launched) == 1


def test_what_cannot_agree_is_named(weighing: WeighingLauncher) -> None:
    _, kept = gate("--launcher", "emulated", "--hosts", "2")
    drawing, local, rounding, left_out = kept["notes"]
    assert "drop" in drawing
    assert "norm/moving_mean" in local
    assert "altered optimizer" in rounding
    assert "host_aggregation" in left_out


@pytest.mark.parametrize(
    ("optimizer", "left_out"), [(Adam(), True), (AdamW(), True), (Momentum(), False)]
)
def test_keras_adam_is_left_out_where_gradients_have_parts(
    optimizer: Optimizer, left_out: bool
) -> None:
    note = "the gradient of words/embeddings is sparse and was made dense"
    model = OwnModel(name="m.py:build", module="m", function="build", digest="d", notes=(note,))
    scope = make_scope((2,), workloads=(Workload(model=model, optimizer=optimizer),))
    assert any(point.strategy.as_shipped for point in arms(scope, 2)) is not left_out
    told = [line for line in notes(scope, TWO_LAYERS) if "stock_ps, stock_allreduce" in line]
    assert len(told) == left_out


TABLE = VariableSpec(name="t", shape=(90, 4), dtype="float32", trainable=True, is_table=True)


@pytest.mark.parametrize(
    ("optimizer", "alone", "told"),
    [
        (Sgd(), Single(), ""),
        (Adam(), Single(embeddings=Embeddings.SPARSE), "Sparse embeddings are compared with a"),
        (AdamW(), None, "Left out, sparse embeddings: optimizer adamw changes rows that nobody"),
    ],
)
def test_rows_agree_with_what_trains_the_same_weights(
    optimizer: Optimizer, alone: Single | None, told: str
) -> None:
    model = OwnModel(name="m.py:build", module="m", function="build", digest="d")
    scope = make_scope((2,), workloads=(Workload(model=model, optimizer=optimizer),))
    by_rows = [each for each in arms(scope, 2) if each.strategy.is_sparse]
    assert {gate_arms.reference_of(each).strategy for each in by_rows} == {alone} - {None}
    assert {each.strategy.servers.table_rows for each in by_rows if each.strategy.servers} >= (
        {*RowRule} if by_rows else set()
    )
    about = [line for line in notes(scope, [*TWO_LAYERS, TABLE]) if "parse embeddings" in line]
    assert [line.startswith(told) for line in about] == [True] * bool(told)


def test_stated_data_is_kept(weighing: WeighingLauncher) -> None:
    gate("--input", "digits")
    assert {point.workload.data for point in weighing.launched} == {Digits()}
