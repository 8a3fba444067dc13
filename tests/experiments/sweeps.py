"""Small sweeps for tests, and what they leave."""

from __future__ import annotations

from pathlib import Path

from experiments.sweep.execute import Follower, Result, execute
from experiments.sweep.sweep import Sweep
from ps_allreduce.point.strategies import Strategy
from ps_allreduce.record.files import iter_record_paths, load_record
from ps_allreduce.record.records import RunRecord
from tests.fakes import FakeLauncher, make_experiment

#: Two repetitions of two points: four runs.
SWEEP = Sweep(
    name="compare",
    points=(make_experiment(Strategy.ALLREDUCE, 1), make_experiment(Strategy.ALLREDUCE, 2)),
    seed=1,
)

ONE = Sweep(name="compare", points=SWEEP.points[:1], seed=1)


def go(
    launcher: FakeLauncher,
    sweep_dir: Path,
    sweep: Sweep = SWEEP,
    follower: Follower | None = None,
) -> Result:
    """Make the runs that are missing."""
    return execute(sweep, sweep.runs(), launcher, sweep_dir, "0123456789ab", follower or Follower())


def records(sweep_dir: Path) -> list[RunRecord]:
    """All records of a sweep, in their order."""
    return [load_record(path) for path in iter_record_paths(sweep_dir)]


def attempts(sweep_dir: Path) -> list[tuple[int, int, str]]:
    """Repetition, attempt and status of every record of the only point."""
    return [(r.repetition, r.attempt, str(r.status)) for r in records(sweep_dir)]
