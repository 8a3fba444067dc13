"""Small sweeps for tests, and what they leave."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from experiments.sweep.definition import Choices
from experiments.sweep.execute import SessionResult, execute
from experiments.sweep.session import RunListener, Workplace
from experiments.sweep.sweep import PlannedRun, Profile, Sweep
from launchers.scheduler import BatchJob
from launchers.settings import LauncherSettings
from ps_allreduce.point.strategies import AllReduce
from ps_allreduce.record.files import RunFiles, iter_record_paths, load_record, save_record
from ps_allreduce.record.records import RunRecord, Status
from tests.fakes import FakeLauncher, make_experiment, make_record

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
    pause: Callable[[float], None] = lambda _: None,
    retry_failed: bool = False,
) -> SessionResult:
    """Make the runs that are missing."""
    place = Workplace(
        launcher=launcher,
        sweep_dir=sweep_dir,
        commit="0123456789ab",
        listener=listener or RunListener(),
        pause=pause,
    )
    return execute(sweep, sweep.runs(), place, Choices(), retry_failed=retry_failed)


def records(sweep_dir: Path) -> list[RunRecord]:
    return [load_record(path) for path in iter_record_paths(sweep_dir)]


def attempts(sweep_dir: Path) -> list[tuple[int, int, str]]:
    """Repetition, attempt and status of every record of the only point."""
    return [(r.repetition, r.attempt, str(r.status)) for r in records(sweep_dir)]


def leave(sweep_dir: Path, **changes: Any) -> RunRecord:
    """Keep the record of a made-up run."""
    record = make_record(**changes)
    files = RunFiles.of(sweep_dir, record.experiment_id, record.repetition, record.attempt)
    save_record(files.record, record)
    return record


def ended(status: Status) -> dict[str, Any]:
    """What sets the record of a run that ended like this apart."""
    return {} if status is Status.OK else {"status": status, "reason": "why", "metrics": None}


class Killed(BaseException):
    """As much of a kill as a test can take."""


def kill(_: object) -> NoReturn:
    """To be called for a launch: the suite is killed during it."""
    raise Killed


@dataclass(slots=True)
class Listener(RunListener):
    """Notes what it is told; of a record, its repetition, attempt and status."""

    heard: list[object] = field(default_factory=list)

    def begin(self, total: int, kept: int) -> None:
        self.heard.append((total, kept))

    def start(self, run: PlannedRun) -> None:
        self.heard.append("start")

    def stage(self, text: str) -> None:
        self.heard.append(text)

    def recovered(self, record: RunRecord) -> None:
        self.heard.append(f"recovered {record.run_id}")

    def refused(self, reason: str) -> None:
        self.heard.append(reason)

    def finish(self, record: RunRecord, log_tail: str) -> None:
        self.heard.append(f"{record.repetition}-{record.attempt} {record.status}")


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
