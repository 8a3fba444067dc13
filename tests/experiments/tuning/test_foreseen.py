"""The study foresight predicts first, launches then, and holds the one against the other."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import pytest

from analysis.data.rows import moment
from analysis.predict import fitting
from analysis.predict.calibration import setting_of, undisturbed, with_servers
from analysis.predict.prediction_file import PredictionFile, read_predictions
from experiments import surroundings
from experiments.studies import foresight
from launchers.run.conclude import LaunchedRun
from launchers.run.launcher import Capacity
from launchers.settings import LauncherSettings
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.network import EmulatedNetwork
from ps_allreduce.point.placement import Policy, VariableSpec
from ps_allreduce.point.resources import Spread
from ps_allreduce.point.strategies import SynchronousServers
from ps_allreduce.point.workload import Workload
from ps_allreduce.record.records import RunOutcome, Status
from tests.analysis.predict.simulated import launch
from tests.experiments.conftest import Machine, run
from tests.experiments.studies.scopes import make_scope
from tests.experiments.sweeps import records
from tests.fakes import FakeLauncher, bad_run, no_events, steps_within

RESULTS = Path("results/foresight")
CHECK = RESULTS / "prediction_check.json"


@dataclass(slots=True)
class FollowingLauncher(FakeLauncher):
    """A launcher whose steps take what the formulas say.

    Attributes:
        ends: the launch that somebody interrupts, by its number.
    """

    ends: int = -1

    def launch(self, experiment: Experiment, **_: Any) -> LaunchedRun:
        self.launched.append(experiment)
        if len(self.launched) == self.ends:
            return bad_run(Status.INTERRUPTED, "asked to end")
        made = launch(experiment)
        assert made.metrics is not None
        return LaunchedRun(
            **{each.name: getattr(made, each.name) for each in fields(RunOutcome)},
            steps=steps_within(made.metrics.window_s),
            events=no_events(),
        )

    def describe(self, workload: Workload) -> tuple[VariableSpec, ...]:
        return tuple(getattr(workload.model, "variables", ()))

    def capacity(self) -> Capacity:
        return Capacity(num_hosts=8, cores_per_host=1, shared_cores=2)


@pytest.fixture
def following(
    launcher: FakeLauncher, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> FollowingLauncher:
    made = FollowingLauncher()

    def launcher_of(settings: LauncherSettings) -> FollowingLauncher:
        return made

    monkeypatch.setattr(surroundings, "launcher_of", launcher_of)
    monkeypatch.setattr(fitting, "DRAWS", 4)
    return made


def files() -> list[PredictionFile]:
    return read_predictions(RESULTS)


def test_predictions_come_first_and_stay_whatever_interrupts(
    following: FollowingLauncher, capsys: pytest.CaptureFixture[str]
) -> None:
    following.ends = 110
    assert run("foresight") == 130
    (made,) = files()
    assert len(made.predicted.points) == 86
    assert made.predicted.left_out == ()
    following.ends = -1
    assert run("foresight") == 0
    assert files() == [made]
    later = [r for r in records(RESULTS) if r.status is Status.OK]
    assert len(later) == 172
    assert min(moment(r.started_at) for r in later) >= moment(made.made_at)
    found = json.loads(CHECK.read_text())
    assert len(found["points"]) == 86
    assert sum(each["apart"] == "" for each in found["points"]) == 76
    # These launches know nothing of other links, and no formula of losses.
    assert len(found["apart"]) == 5
    slower = [own["mape"] > 0.5 for own in found["apart"].values()]
    assert slower == [True, True, False, False, True]
    # Launches follow the formulas, so only what two workers cannot tell is missed.
    assert found["mape"] < 0.05
    assert found["advice_gap"] < 0.05
    assert found["coverage_90"] > 0.8
    assert {*found["by_scale"]} == {"2", "4"}
    assert made.digest in found["digests"]
    assert "advised one" in capsys.readouterr().out
    # Predictions rest on nothing that they predict.
    shutil.rmtree(RESULTS)
    following.ends = len(following.launched) + 1
    assert run("foresight") == 130
    (again,) = files()
    assert again.digest == made.digest
    assert again.made_at >= made.made_at


def points(of: str) -> list[Experiment]:
    small = foresight.STUDY.small
    assert small is not None
    assert foresight.STUDY.calibration is not None
    scope = make_scope(
        small.workers,
        workloads=small.workloads,
        launcher="emulated",
        spread=Spread(),
        network=EmulatedNetwork(num_hosts=small.hosts, bits_per_s=None),
        settings=small.settings,
        describe=lambda workload: getattr(workload.model, "variables", ()),
    )
    made = foresight.STUDY.points if of == "points" else foresight.STUDY.calibration
    return [*made(scope)]


def test_every_predicted_setting_is_calibrated_with_less() -> None:
    predicted, calibrated = points("points"), points("calibration")
    assert sum(undisturbed(p) == p for p in predicted) == 76
    served = [replace(p, strategy=with_servers(p.strategy, p.num_workers)) for p in predicted]
    assert {setting_of(undisturbed(p)) for p in served} == {
        setting_of(p) for p in calibrated if p.strategy.communicates()
    }
    assert max(p.num_workers for p in calibrated) == 2
    assert Counter(p.num_workers for p in predicted) == {4: 46, 8: 40}
    assert rates(predicted).isdisjoint(rates(calibrated))
    assert len(rates(predicted)) == 3


@pytest.mark.parametrize(
    ("words", "calibrated", "predicted"),
    [
        (("--model", "InceptionV3/64", "--emulate", "0.1,0.2", "--workers", "4"), 13, 17),
        (("--workers", "3,6"), 51, 76),
    ],
)
def test_what_is_stated_is_predicted_alone(
    following: FollowingLauncher,
    capsys: pytest.CaptureFixture[str],
    words: Sequence[str],
    calibrated: int,
    predicted: int,
) -> None:
    assert run("foresight", *words, "--dry-run") == 0
    told = capsys.readouterr().out
    assert f"{calibrated} points, {2 * calibrated} runs" in told
    assert f"{predicted} points, {2 * predicted} runs" in told


def rates(points: Sequence[Experiment]) -> set[float | None]:
    return {each.network.bits_per_s for each in points if each.network}


def test_every_question_has_all_its_candidates() -> None:
    asked = Counter(
        (p.workload, p.num_workers, p.network)
        for p in points("points")
        if p.strategy.synchronous and undisturbed(p) == p
    )
    assert len(asked) == 12
    assert set(asked.values()) == {6}
    policies = {
        p.strategy.servers.placement
        for p in points("points")
        if isinstance(p.strategy, SynchronousServers)
    }
    assert policies == {Policy.PARTITIONED, Policy.ROUND_ROBIN, Policy.GREEDY}
