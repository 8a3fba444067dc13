"""Small sweeps for tests, and what they leave."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from experiments.sweep.execute import RunListener, SessionResult, execute
from experiments.sweep.profiles import Profile
from experiments.sweep.sweep import Sweep
from launchers.scheduler import BatchJob
from launchers.settings import LauncherSettings
from ps_allreduce.point.strategies import AllReduce
from ps_allreduce.record.files import iter_record_paths, load_record
from ps_allreduce.record.records import RunRecord
from tests.fakes import FakeLauncher, make_experiment

PROFILE = Profile(name="quick", repetitions=2, deadline_s=60.0)

#: Two repetitions of two points: four runs.
SWEEP = Sweep(
    name="compare",
    points=(make_experiment(AllReduce, 1), make_experiment(AllReduce, 2)),
    profile=PROFILE,
    seed=1,
)

ONE = Sweep(name="compare", points=SWEEP.points[:1], profile=PROFILE, seed=1)


def go(
    launcher: FakeLauncher,
    sweep_dir: Path,
    sweep: Sweep = SWEEP,
    listener: RunListener | None = None,
) -> SessionResult:
    """Make the runs that are missing."""
    commit, runs = "0123456789ab", sweep.runs()
    return execute(sweep, runs, launcher, sweep_dir, commit, listener or RunListener())


def records(sweep_dir: Path) -> list[RunRecord]:
    """All records of a sweep, in their order."""
    return [load_record(path) for path in iter_record_paths(sweep_dir)]


def attempts(sweep_dir: Path) -> list[tuple[int, int, str]]:
    """Repetition, attempt and status of every record of the only point."""
    return [(r.repetition, r.attempt, str(r.status)) for r in records(sweep_dir)]


@dataclass(slots=True, kw_only=True)
class FakeScheduler:
    """A batch system whose jobs are in these states, one after the other, and then over.

    Attributes:
        states: by job.
        ending: what it says about the end of a job.
        submitted: scripts that were handed over; the jobs are numbered from 7.
    """

    states: dict[str, list[str]] = field(default_factory=dict)
    ending: Callable[[str], str] = lambda _: ""
    submitted: list[Path] = field(default_factory=list)

    def inside_job(self) -> bool:
        return False

    def refuse_login_node(self) -> None:
        """Train wherever you like."""

    def hosts_of(self, nodelist: str) -> tuple[str, ...]:
        return ()

    def check_options(self, settings: LauncherSettings, *, jobs_by_size: bool) -> None:
        """Anything goes."""

    def cores_per_node(self, settings: LauncherSettings) -> int:
        return 4

    def script(self, job: BatchJob) -> str:
        return f"{job.num_hosts} hosts, after {job.after}\n"

    def submit(self, script: Path) -> str:
        self.submitted.append(script)
        return str(6 + len(self.submitted))

    def is_over(self, job_id: str) -> bool:
        return not self.states.get(job_id)

    def explain(self, job_id: str) -> str:
        return self.ending(job_id)

    def state(self, job_id: str) -> str:
        return self.states[job_id].pop(0)

    def cancel_command(self, job_ids: Sequence[str]) -> str:
        return f"cancel {' '.join(job_ids)}"
