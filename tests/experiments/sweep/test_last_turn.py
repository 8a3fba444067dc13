"""A sweep ends when its main ratio is known well enough, and says that it looked."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from analysis.data.load import read_sweep
from experiments.sweep.definition import LAUNCHES, LEFT, Choices, read_choices
from experiments.sweep.execute import SessionResult, Stop, execute
from experiments.sweep.session import RunListener, Workplace
from experiments.sweep.sweep import Profile, Sweep
from launchers.run.conclude import LaunchedRun
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.placement import Policy
from ps_allreduce.point.strategies import AllReduce, Horovod, SynchronousServers
from ps_allreduce.record.files import EARLY_STOPPING
from ps_allreduce.record.records import Status
from tests.experiments.sweeps import records
from tests.fakes import METRICS, FakeLauncher, bad_run, make_experiment, ok_run

pytestmark = pytest.mark.usefixtures("machine")

SWEEP = Sweep(
    name="compare",
    points=(make_experiment(AllReduce, 2), make_experiment(SynchronousServers, 2)),
    profile=Profile(name="standard", repetitions=3, budget_s=1000.0, precision=0.02),
    seed=1,
    main_launches=8,
)


def rated(rate: float) -> LaunchedRun:
    return ok_run(metrics=replace(METRICS, examples_per_sec=rate))


def alternating(spread: float) -> list[LaunchedRun]:
    """Launches whose rates lie above and below their mean in turn."""
    return [rated(100.0 * (1 + spread * (-1) ** (n // 2 + n))) for n in range(16)]


def go(launcher: FakeLauncher, folder: Path, choices: Choices | None = None) -> SessionResult:
    place = Workplace(
        launcher=launcher, sweep_dir=folder, commit="0123456789ab", pause=lambda _: None
    )
    kept = choices or Choices()
    sweep = replace(SWEEP, main_launches=kept.answer(LAUNCHES, int) or SWEEP.main_launches)
    return execute(sweep, sweep.runs(), place, kept)


def test_a_narrow_interval_ends_the_sweep_and_the_same_command_adds_nothing(
    tmp_path: Path,
) -> None:
    result = go(FakeLauncher(alternating(0.0001)), tmp_path)
    assert result.stop is Stop.PRECISE
    assert result.standing.is_complete
    assert len(result.made) == 2 * 3
    files = read_sweep(tmp_path)
    assert (files.definition.may_stop_early, len(files.definition.planned)) == (True, 6)
    again = go(FakeLauncher(), tmp_path, read_choices(tmp_path, "", None))
    assert (again.made, again.stop) == ((), None)


def test_a_wide_interval_ends_nothing_and_the_last_look_is_noted(tmp_path: Path) -> None:
    result = go(FakeLauncher(alternating(0.1)), tmp_path)
    assert (result.stop, len(result.made)) == (None, 16)
    assert read_choices(tmp_path, "", None).answer(EARLY_STOPPING, int) == 7


def test_looks_of_an_interrupted_sweep_count_when_it_goes_on(tmp_path: Path) -> None:
    script = [*alternating(0.1)[:9], bad_run(Status.INTERRUPTED)]
    assert go(FakeLauncher(script), tmp_path).stop is Stop.INTERRUPTED
    choices = read_choices(tmp_path, "", None)
    go(FakeLauncher(alternating(0.1)), tmp_path, choices)
    assert read_sweep(tmp_path).definition.may_stop_early
    assert len(records(tmp_path)) == 17


def test_what_failed_is_tried_again_when_the_rest_is_known(tmp_path: Path) -> None:
    script = [bad_run(Status.FAILED), *(rated(100.0 + n / 100) for n in range(20))]
    result = go(FakeLauncher(script), tmp_path)
    assert result.stop is Stop.PRECISE
    assert result.standing.is_complete


QUICK = replace(
    SWEEP, profile=Profile(name="quick", repetitions=3, budget_s=100.0), main_launches=30
)


@dataclass(slots=True, kw_only=True)
class Clock:
    """Passes as a test says."""

    now: float

    def pass_s(self, seconds: float) -> None:
        """Let some time pass."""
        self.now += seconds


class Estimates(RunListener):
    """Hears how many runs are likely to be made."""

    def __init__(self) -> None:
        self.expected: list[int] = []

    def expect(self, more: int) -> None:
        self.expected.append(more)


@pytest.mark.parametrize(("left_s", "launches"), [(-1.0, 3), (19.0, 3), (45.0, 3 + 2)])
def test_turns_are_made_for_as_long_as_they_fit_into_the_time(
    left_s: float, launches: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(now=1000.0)
    monkeypatch.setattr("experiments.sweep.execute.time.monotonic", lambda: clock.now)
    fake = FakeLauncher(on_launch=lambda _: clock.pass_s(10.0))
    listener = Estimates()
    place = Workplace(launcher=fake, sweep_dir=tmp_path, commit="0123456789ab", listener=listener)
    begun = clock.now + 6 * 10.0 + left_s - 100.0  # so much is left after the fewest launches
    result = execute(QUICK, QUICK.runs(), place, Choices(), begun=begun)
    assert (result.stop, len(result.made), result.kept) == (None, 2 * launches, 0)
    assert result.standing.is_complete
    assert read_choices(tmp_path, "", None).answer(LAUNCHES, int) == launches
    assert listener.expected == [2 * n for n in range(launches - 3, -1, -1)]
    files = read_sweep(tmp_path)
    assert (len(files.definition.planned), files.definition.may_stop_early) == (2 * launches, False)


def test_the_fewest_turns_of_the_main_comparison_are_made_without_time(tmp_path: Path) -> None:
    profile = replace(QUICK.profile, main_repetitions=5, budget_s=1.0)
    sweep = replace(QUICK, profile=profile)
    place = Workplace(launcher=FakeLauncher(), sweep_dir=tmp_path, commit="0123456789ab")
    result = execute(sweep, sweep.runs(), place, Choices(), begun=0.0)
    assert len(result.made) == 2 * 5
    assert read_choices(tmp_path, "", None).answer(LAUNCHES, int) == 5
    assert len(read_sweep(tmp_path).definition.planned) == 2 * 5


SLOW = make_experiment(SynchronousServers, 2, placement=Policy.GREEDY)
NEAR = make_experiment(Horovod, 2)

#: Turns of each: half as fast is told after three launches, 10 % slower after four.
TURNS = {**dict.fromkeys(SWEEP.points, 6), SLOW: 3, NEAR: 4}


def rate_of(point: Experiment, turn: int) -> float:
    """In examples per second."""
    near = 0.9 * (0.98 if turn % 2 else 1.02)
    return 100.0 * {NEAR: near, SLOW: 0.5}.get(point, 1.0)


@pytest.mark.parametrize("killed_after", [None, 12, 13, 14, 15, 17])
def test_settings_leave_when_they_are_decided_slower_also_where_the_sweep_was_interrupted(
    killed_after: int | None, tmp_path: Path
) -> None:
    launcher, ended = FakeLauncher(), Counter[Experiment]()

    def say(point: Experiment) -> None:
        if len(launcher.launched) - 1 == killed_after:
            launcher.script = [bad_run(Status.INTERRUPTED)]
        else:
            launcher.script = [rated(rate_of(point, ended[point]))]
            ended[point] += 1

    launcher.on_launch = say
    place = Workplace(launcher=launcher, sweep_dir=tmp_path, commit="0123456789ab")
    profile = Profile(name="quick", repetitions=3, main_repetitions=6, budget_s=1.0)
    sweep = replace(QUICK, points=(*SWEEP.points, SLOW, NEAR), profile=profile)
    if killed_after is not None:
        begun = execute(sweep, sweep.runs(), place, Choices(), begun=0.0)
        assert begun.stop is Stop.INTERRUPTED
    choices = read_choices(tmp_path, "", None)
    sweep = replace(sweep, left=choices.answer(LEFT, dict[str, int]) or {})
    result = execute(sweep, sweep.runs(), place, choices, begun=0.0)
    planned = Counter(key.split("/")[0] for key in read_sweep(tmp_path).definition.planned)
    assert planned == {point.experiment_id: count for point, count in TURNS.items()}
    assert ended == TURNS
    assert result.standing.is_complete
