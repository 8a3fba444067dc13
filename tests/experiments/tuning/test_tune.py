"""The command `tune`: launches of both sides in turn, resumed, and what is said of winners."""

from __future__ import annotations

import csv
import shlex
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from experiments import surroundings
from experiments.sweep import folder, session
from experiments.tuning.halving import LaunchOutcome, Moment, SideStanding
from experiments.tuning.outcome import SideOutcome, options_of, render_side
from launchers.run.conclude import LaunchedRun
from launchers.settings import LauncherSettings
from ps_allreduce.exchange.stacking import RowRule
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.models.recommenders import RecommenderModel
from ps_allreduce.point.optimizers import Sgd
from ps_allreduce.point.strategies import (
    AllReduce,
    AnyStrategy,
    AsynchronousServers,
    Horovod,
    StockServers,
    SynchronousServers,
)
from ps_allreduce.point.strategies.stated import Altered, Embeddings
from ps_allreduce.point.wire import Collective, WireType
from ps_allreduce.point.workload import Workload
from ps_allreduce.record.records import RunRecord, Status
from tests.experiments.conftest import Machine, run
from tests.experiments.sweeps import records
from tests.fakes import METRICS, FakeLauncher, bad_run, fit, make_experiment, ok_run

TUNE = ("tune", "--launcher", "local", "--minutes", "4")

LAUNCH_S = 6.0


@dataclass(slots=True)
class RatedLauncher(FakeLauncher):
    """A launcher whose launches take equally long and have the rates that a test says.

    Attributes:
        rate: of a point.
        change: what becomes of a point's run.
    """

    rate: Callable[[Experiment], float] = lambda _: 100.0
    change: Callable[[Experiment, LaunchedRun], LaunchedRun] = lambda _, launched: launched
    passed_s: float = 0.0

    def launch(self, experiment: Experiment, **_: Any) -> LaunchedRun:
        self.launched.append(experiment)
        self.passed_s += LAUNCH_S
        metrics = replace(METRICS, examples_per_sec=self.rate(experiment))
        return self.change(experiment, fit(ok_run(metrics=metrics), experiment))

    def now(self) -> str:
        moment = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=self.passed_s)
        return moment.isoformat(timespec="milliseconds")


@pytest.fixture
def rated(
    launcher: FakeLauncher, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> RatedLauncher:
    made = RatedLauncher()

    def launcher_of(settings: LauncherSettings) -> RatedLauncher:
        return made

    monkeypatch.setattr(surroundings, "launcher_of", launcher_of)
    for module in (folder, session):
        monkeypatch.setattr(module, "now", made.now)
    return made


def prefers(*words: str) -> Callable[[Experiment], float]:
    return lambda point: 100.0 + 10.0 * sum(word in point.title for word in words)


def kept(name: str = "tune") -> list[RunRecord]:
    return sorted(records(Path("results") / name), key=lambda record: record.started_at)


def table() -> list[dict[str, str]]:
    with Path("results/tune/tuning-race.csv").open() as stream:
        return [*csv.DictReader(stream)]


def test_both_sides_spend_their_share_and_the_best_setting_of_each_wins(
    rated: RatedLauncher, capsys: pytest.CaptureFixture[str]
) -> None:
    rated.rate = prefers("2 MB packs", "unbucketed")
    assert run(*TUNE) == 0
    counts = Counter(point.strategy.uses_servers for point in rated.launched)
    assert counts[False] == pytest.approx(120 / LAUNCH_S, abs=2)
    assert abs(counts[False] - counts[True]) <= 2
    told = capsys.readouterr().out
    best = [line for line in told.splitlines() if line.startswith(("all-reduce:", "parameter"))]
    assert "2 MB packs" in best[0]
    assert "unbucketed" in best[1]
    assert "winner's curse" in told
    assert {record.status for record in kept()} == {Status.OK}
    last = [row for row in table() if row["side"] == "all-reduce"][-1]
    assert last["node_minutes"] == str(round(counts[False] * LAUNCH_S / 60, 4))


def test_the_same_command_goes_on_where_it_was_interrupted(rated: RatedLauncher) -> None:
    rated.rate = prefers("2 MB packs")
    assert run(*TUNE) == 0
    whole, rows = [record.run_id for record in kept()], table()
    for path in Path("results").rglob("*.json"):
        path.unlink()
    rated.launched.clear()
    rated.change = lambda _, launched: (
        bad_run(Status.INTERRUPTED, "asked to end") if len(rated.launched) == 5 else launched
    )
    assert run(*TUNE) == 130
    assert run(*TUNE) == 0
    assert len(rated.launched) == len(whole) + 1
    assert [r.run_id.split("-")[0] for r in kept() if r.status is Status.OK] == [
        run_id.split("-")[0] for run_id in whole
    ]
    assert table() == rows
    rated.launched.clear()
    rated.change = lambda _, launched: launched
    assert run(*TUNE) == 0
    assert rated.launched == []
    assert run(*TUNE[:-1], "6") == 0
    assert len(rated.launched) > 5


def test_a_candidate_that_fails_twice_is_out_with_its_reason(
    rated: RatedLauncher, capsys: pytest.CaptureFixture[str]
) -> None:
    rated.rate = prefers("one pack")
    rated.change = lambda point, launched: (
        bad_run(Status.FAILED) if "one pack" in point.title else launched
    )
    assert run(*TUNE) == 0
    told = capsys.readouterr().out
    first, second = (record for record in kept() if record.status is Status.FAILED)
    assert told.count("one pack, batch 32: failed, worker:1 was killed by SIGKILL.") == 2
    assert first.experiment_id == second.experiment_id
    assert first.experiment_id not in [row["best_experiment_id"] for row in table()]


def test_a_side_that_fails_altogether_is_told(
    rated: RatedLauncher, capsys: pytest.CaptureFixture[str]
) -> None:
    rated.change = lambda point, launched: (
        bad_run(Status.FAILED) if point.strategy.uses_servers else launched
    )
    assert run(*TUNE) == 1
    assert "synchronous: no candidate could be run." in capsys.readouterr().out


def test_no_winner_is_said_to_look_better_than_it_is_where_there_is_none(
    rated: RatedLauncher, capsys: pytest.CaptureFixture[str]
) -> None:
    rated.change = lambda *_: bad_run(Status.FAILED)
    assert run(*TUNE) == 1
    assert "curse" not in capsys.readouterr().out


def test_launches_of_the_last_round_are_counted_for_each_of_the_two() -> None:
    points = {p.experiment_id: p for p in (make_experiment(AllReduce), make_experiment(Horovod))}
    default, other = points
    launched = [(default, 100.0), (other, 120.0)] * 2 + [(default, None), (other, 121.0)]
    moments = tuple(
        Moment(
            candidate=candidate,
            round=1,
            is_last=True,
            outcome=LaunchOutcome(rate=rate, node_s=1.0, reason="" if rate else "failed"),
            spent_s=float(number),
            best=other,
            best_rate=120.0,
        )
        for number, (candidate, rate) in enumerate(launched)
    )
    side = SideOutcome(points=points, standing=SideStanding(moments=moments, next=None))
    told = " ".join(render_side(side, Path("results")))
    assert "of the default in the last round (3 and 2 launches)" in told


def test_options_of_rows_say_so() -> None:
    load = Workload(model=RecommenderModel(), optimizer=Sgd())
    settings: dict[str, Any] = {
        "embeddings": Embeddings.SPARSE,
        "table_rows": RowRule.HASH,
        "workload": load,
    }
    assert "--embeddings sparse --table-rows hash" in options_of(make_experiment(**settings))


@pytest.mark.parametrize(
    ("strategy", "settings"),
    [
        (SynchronousServers, {"gradients": WireType.BFLOAT16, "host_aggregation": True}),
        (AsynchronousServers, {"staleness": 4, "steps_per_dispatch": 2, "synchronous_steps": 3}),
        (AllReduce, {"collective": Collective.AUTO}),
        (Horovod, {"fusion_bytes": 1_000_000, "cycle_ms": 2.5}),
        (StockServers, {"altered": Altered.OPTIMIZER, "join_rounds": True}),
    ],
)
def test_options_hold_what_is_not_tuned_as_well(
    strategy: type[AnyStrategy], settings: dict[str, Any], rated: RatedLauncher
) -> None:
    own = make_experiment(strategy, 2, **settings)
    assert run("run-one", *shlex.split(options_of(own))) == 0
    assert rated.launched[-1].strategy == own.strategy


def test_options_of_a_winner_make_the_same_experiment(
    rated: RatedLauncher, capsys: pytest.CaptureFixture[str]
) -> None:
    rated.rate = prefers("partitioned", "2 in flight", "threads")
    assert run(*TUNE[:-1], "12") == 0
    lines = [x.strip() for x in capsys.readouterr().out.splitlines()]
    options = [line for line in lines if line.startswith("--strategy")]
    exports = [line for line in lines if line.startswith("make export")]
    assert len(options) == 2
    rated.launched.clear()
    for line, export in zip(options, exports, strict=True):
        assert run("run-one", *shlex.split(line)) == 0
        winner = export.split("SETTING=")[1].split()[0]
        (tuned,) = {r.experiment for r in kept() if r.experiment_id == winner}
        assert replace(rated.launched[-1], measurement=tuned.measurement) == tuned


COMPARE = ("compare", "--launcher", "local", "--model", "SmallCNN", "--workers", "2")
THOROUGH = (*COMPARE, "--profile", "standard", "--budget-s", "1200")


def test_a_thorough_comparison_tunes_first_and_measures_winners_on_launches_of_its_own(
    rated: RatedLauncher,
) -> None:
    rated.rate = prefers("2 MB packs", "partitioned, 2 in flight")
    assert run(*THOROUGH) == 0
    tuned = kept("tune/SmallCNN")
    counts = Counter(record.experiment.strategy.uses_servers for record in tuned)
    assert counts[False] == pytest.approx(120 / LAUNCH_S, abs=2)
    assert abs(counts[False] - counts[True]) <= 2
    compared = {record.experiment for record in kept("compare")}
    assert {record.experiment_id for record in tuned}.isdisjoint(
        point.experiment_id for point in compared
    )
    for word in ("2 MB packs", "partitioned, 2 in flight"):
        assert len([point for point in compared if word in point.title]) == 1
    rated.launched.clear()
    assert run(*THOROUGH) == 0
    assert rated.launched == []


@pytest.mark.parametrize(
    "words",
    [
        COMPARE,
        *((*THOROUGH, *stated) for stated in (("--repetitions", "1"), ("--num-ps", "1"))),
        (*THOROUGH, "--dry-run"),
    ],
    ids=["quick", "stated repetitions", "stated settings", "dry run"],
)
def test_other_comparisons_do_not_tune(words: tuple[str, ...], rated: RatedLauncher) -> None:
    # The first launch, if there is one, is the comparison's own.
    rated.change = lambda *_: bad_run(Status.INTERRUPTED, "asked to end")
    assert run(*words) == (0 if "--dry-run" in words else 130)
    assert not Path("results/tune").exists()


def test_a_comparison_ends_where_its_tuning_is_interrupted(rated: RatedLauncher) -> None:
    rated.change = lambda *_: bad_run(Status.INTERRUPTED, "asked to end")
    assert run(*THOROUGH) == 130
    assert not Path("results/compare").exists()


def test_the_users_own_model_is_tried_once_for_a_tuning_and_its_sweep(
    rated: RatedLauncher, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("mine.py").write_text("def build(): ...")
    words = ["mine.py:build" if word == "SmallCNN" else word for word in THOROUGH]
    assert run(*words) == 0
    assert capsys.readouterr().err.count("Trying mine.py:build on this machine") == 1
    assert kept("tune/mine.py-build")
    assert kept("compare")
