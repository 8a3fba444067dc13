"""A sweep in a job of its own: what is asked for, that there is one at a time, what is shown."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from experiments.sweep import submission
from experiments.sweep.estimate import USUAL_MEASURED_S, Estimate, estimate
from experiments.sweep.execute import LAUNCH_ALLOWANCE_S, Follower
from experiments.sweep.submission import (
    JOB_FILE,
    PlannedJob,
    all_well,
    batch_job,
    follow,
    live_jobs,
    made_by,
    minutes_from,
    planned_jobs,
    render_plan,
    submit_jobs,
    unsettled,
)
from experiments.sweep.sweep import Sweep, job_sizes
from ps_allreduce.errors import UserError
from ps_allreduce.point.spread import Spread
from ps_allreduce.point.strategies import Strategy
from ps_allreduce.record.files import RunFiles, save_record
from ps_allreduce.record.records import RunRecord, Status
from tests.experiments.conftest import run
from tests.experiments.sweeps import SWEEP
from tests.fakes import PROFILE, PROVENANCE, FakeLauncher, make_experiment, make_record

EXPECTED = Estimate(num_runs=10, usual_s=1000.0, most_s=4000.0)


def test_a_sweep_takes_what_its_runs_take() -> None:
    expected = estimate(SWEEP.runs(), 20.0)
    assert expected.num_runs == 4
    assert expected.usual_s == 4 * (PROFILE.warmup_s + USUAL_MEASURED_S + 20.0)
    assert expected.most_s == 4 * (PROFILE.deadline_s + LAUNCH_ALLOWANCE_S)


def test_a_run_that_measures_longer_than_usual_is_given_that_time() -> None:
    long = make_experiment(profile=replace(PROFILE, measured_s=100.0, repetitions=1))
    sweep = Sweep(name="x", points=(long,), seed=1)
    assert estimate(sweep.runs(), 0.0).usual_s == PROFILE.warmup_s + 100.0


@pytest.mark.parametrize(
    ("text", "minutes"),
    [
        ("30", 30),
        ("30:01", 31),
        ("2:00:00", 120),
        ("1:30:30", 91),
        ("1-12", 2160),
        ("1-0:30", 1470),
        ("0:10", 1),
        (None, 35),
    ],
)
def test_a_limit_is_read_as_slurm_reads_it(text: str | None, minutes: int) -> None:
    assert minutes_from(text, EXPECTED) == minutes


def test_a_limit_that_nobody_asked_for_is_no_longer_than_the_runs_may_take() -> None:
    assert minutes_from(None, replace(EXPECTED, most_s=600.0)) == 20


@pytest.mark.parametrize("text", ["", "soon", "1:2:3:4", "-30", "1h", "x-1"])
def test_what_is_no_limit_is_refused(text: str) -> None:
    with pytest.raises(UserError, match="is no time; write minutes, hours:minutes:seconds"):
        minutes_from(text, EXPECTED)


def typed(**changes: Any) -> dict[str, Any]:
    nothing = dict.fromkeys(("time_limit", "partition", "account", "constraint", "gpus_per_node"))
    return {"hosts": 4, "shared_nodes": False, "sbatch": (), "setup": ()} | nothing | changes


def test_the_job_runs_this_same_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["experiments", "compare", "--launcher", "slurm"])
    job = batch_job("compare", typed(time_limit="30", partition="gpu"), 4, EXPECTED, tmp_path)
    assert job.command[1:] == ("-m", "experiments", "compare", "--launcher", "slurm")
    assert (job.num_hosts, job.minutes, job.partition, job.whole_nodes) == (4, 30, "gpu", True)
    assert job.log.parent == tmp_path / "slurm"


def one_job(sweep_dir: Path) -> PlannedJob:
    job = batch_job("compare", typed(time_limit="30"), 4, EXPECTED, sweep_dir)
    return PlannedJob(job=job, expected=EXPECTED)


def test_a_plan_says_what_it_costs_and_what_it_leaves(tmp_path: Path) -> None:
    plan = render_plan([one_job(tmp_path)], tmp_path)
    assert "1 job on 4 hosts, limit 30 min: at most 2.0 node hours" in plan
    assert "10 runs, about 17 min and at most 67 min" in plan
    assert f"at most 30 files below {tmp_path}/runs" in plan
    assert "#SBATCH --nodes=4" in plan


def test_a_submitted_job_is_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(submission, "submit", lambda script: f"17 {script.suffix}")
    assert submit_jobs([one_job(tmp_path)], tmp_path) == ["17 .sh"]
    (note,) = json.loads((tmp_path / JOB_FILE).read_text())["jobs"]
    assert note["job_id"] == "17 .sh"
    assert "#SBATCH --nodes=4" in Path(note["script"]).read_text()


@pytest.mark.parametrize(
    ("text", "over", "expected"),
    [
        ('{"jobs": [{"job_id": "17"}], "command": ["same"]}', False, ["17"]),
        ('{"jobs": [{"job_id": "17"}], "command": ["same"]}', True, []),
        (
            '{"jobs": [{"job_id": "17"}, {"job_id": "18"}], "command": ["same"]}',
            False,
            ["17", "18"],
        ),
        ('{"jobs": [{"job_id": "17"}]}', False, []),
        ('{"jobs": ["17"], "command": ["same"]}', False, []),
        ("{}", False, []),
        ("[]", False, []),
        ("{", False, []),
        (None, False, []),
    ],
)
def test_a_sweep_has_one_job_at_a_time(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    text: str | None,
    over: bool,
    expected: list[str],
) -> None:
    monkeypatch.setattr(submission, "job_is_over", lambda _: over)
    if text is not None:
        (tmp_path / JOB_FILE).write_text(text)
    monkeypatch.setattr(submission, "own_command", lambda: ("same",))
    assert live_jobs(tmp_path) == expected


def test_a_job_that_was_asked_for_otherwise_is_not_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(submission, "job_is_over", lambda _: False)
    command = ["python", "-m", "experiments", "compare"]
    note = {"jobs": [{"job_id": "17"}, {"job_id": "18"}], "command": command}
    (tmp_path / JOB_FILE).write_text(json.dumps(note))
    with pytest.raises(UserError, match=r"asked for otherwise \(compare\).* scancel 17 18 first"):
        live_jobs(tmp_path)


def leave(sweep_dir: Path, **changes: Any) -> RunRecord:
    record = make_record(**changes)
    files = RunFiles.of(sweep_dir, record.experiment_id, record.repetition, record.attempt)
    save_record(files.record, record)
    return record


@dataclass(slots=True)
class Listener(Follower):
    """Notes what it is told."""

    heard: list[str] = field(default_factory=list)

    def stage(self, text: str) -> None:
        self.heard.append(text)

    def finish(self, record: RunRecord, log_tail: str) -> None:
        self.heard.append(record.run_id)


@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """A job that is in these states, one after the other, and then over."""

    def be(*states: str, ending: str = "") -> None:
        left = list(states)
        monkeypatch.setattr(submission, "job_is_over", lambda _: not left)
        monkeypatch.setattr(submission, "explain_job", lambda _: ending)
        monkeypatch.setattr(
            submission,
            "show_job",
            lambda _: dict(zip(("JobState", "Reason"), left.pop(0).split(), strict=True)),
        )

    return be


def test_who_follows_a_job_hears_of_every_new_record(
    tmp_path: Path, job: Callable[..., None]
) -> None:
    known = leave(tmp_path, repetition=0)
    job("PENDING Priority", "RUNNING None")
    listener, coming = Listener(), iter([1, 2, 3])
    told: list[str] = []

    def sleep(_: float) -> None:
        leave(tmp_path, repetition=next(coming))

    paths = [RunFiles.of(tmp_path, known.experiment_id, 0, 0).record]
    ending = follow(["17"], tmp_path, paths, listener, told.append, sleep)
    assert told == ["job 17 pending (Priority)", "job 17 running"]
    assert ending == ""
    ids = [f"{known.experiment_id}/{number}-0" for number in (1, 2, 3)]
    assert listener.heard == [
        "job 17 pending (Priority)",
        ids[0],
        "job 17 running",
        *ids[1:],
    ]


def test_a_record_that_has_not_arrived_whole_is_waited_for(
    tmp_path: Path, job: Callable[..., None]
) -> None:
    job("RUNNING None", ending="job 17 reached its time limit (TIMEOUT)")
    path = RunFiles.of(tmp_path, make_record().experiment_id, 0, 0).record
    path.parent.mkdir(parents=True)
    path.write_text("{")
    whole = iter([False, True])

    def sleep(_: float) -> None:
        if next(whole):
            path.unlink()
            leave(tmp_path)

    listener = Listener()
    ending = follow(["17"], tmp_path, [], listener, lambda _: None, sleep)
    assert any(said.endswith("/0-0") for said in listener.heard)
    assert ending == "job 17 reached its time limit (TIMEOUT)"


def test_a_job_ended_well_if_it_did_and_its_runs_did() -> None:
    failed = make_record(**why(Status.FAILED))
    assert all_well([make_record()], "")
    assert not all_well([make_record(), failed], "")
    assert not all_well([make_record()], "job 17 was cancelled")
    assert not all_well([], "")


def test_runs_that_an_earlier_job_was_interrupted_in_are_not_this_jobs(tmp_path: Path) -> None:
    reason = "job 4 lost a node"
    leave(tmp_path, job_id="4", status=Status.INTERRUPTED, reason=reason, metrics=None)
    again = leave(tmp_path, job_id="17", attempt=1)
    assert made_by(["17"], tmp_path) == [again]


def test_runs_that_this_commit_has_settled_are_not_counted(tmp_path: Path) -> None:
    here, runs = PROVENANCE.commit, SWEEP.runs()
    assert unsettled(runs, tmp_path, here) == runs
    point = SWEEP.points[0]
    leave(tmp_path, experiment=point, repetition=0)
    leave(tmp_path, experiment=point, repetition=1, **why(Status.INVALID))
    assert {run.experiment for run in unsettled(runs, tmp_path, here)} == {SWEEP.points[1]}
    assert len(unsettled(runs, tmp_path, "another")) == 4
    leave(tmp_path, experiment=SWEEP.points[1], repetition=0, **why(Status.FAILED))
    assert len(unsettled(runs, tmp_path, here)) == 2


def why(status: Status) -> dict[str, Any]:
    return {"status": status, "reason": "why", "metrics": None}


BY_SIZE = Sweep(
    name="compare",
    points=tuple(
        make_experiment(strategy, workers, spread=Spread())
        for strategy, workers in (
            (Strategy.SINGLE, 1),
            (Strategy.ALLREDUCE, 1),
            (Strategy.ALLREDUCE, 2),
            (Strategy.ALLREDUCE, 3),
        )
    ),
    seed=1,
    job_sizes=job_sizes(3),
)


def test_a_job_for_each_size_begins_after_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers = iter("789")
    monkeypatch.setattr(submission, "submit", lambda _: next(numbers))
    jobs = planned_jobs(BY_SIZE, BY_SIZE.runs(), typed(hosts=3), tmp_path)
    assert [one.job.num_hosts for one in jobs] == [1, 2, 3]
    assert [one.expected.num_runs for one in jobs] == [4, 4, 4]
    plan = render_plan(jobs, tmp_path)
    assert "1 job on 1 host, limit" in plan
    assert "each begins when the one before it has ended (--dependency=afterany" in plan
    assert submit_jobs(jobs, tmp_path) == ["7", "8", "9"]
    notes = json.loads((tmp_path / JOB_FILE).read_text())["jobs"]
    scripts = [Path(note["script"]).read_text() for note in notes]
    waits = [
        [line for line in text.splitlines() if line.startswith("#SBATCH --dependency")]
        for text in scripts
    ]
    assert waits == [
        [],
        ["#SBATCH --dependency=afterany:7"],
        ["#SBATCH --dependency=afterany:8"],
    ]


def test_a_size_of_which_all_runs_are_there_gets_no_job(tmp_path: Path) -> None:
    left = [run for run in BY_SIZE.runs() if run not in BY_SIZE.runs_of_job(2)]
    jobs = planned_jobs(BY_SIZE, left, typed(hosts=3), tmp_path)
    assert [one.job.num_hosts for one in jobs] == [1, 3]
    assert planned_jobs(BY_SIZE, [], typed(hosts=3), tmp_path) == []


def test_jobs_of_a_chain_are_followed_one_after_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = {"7": 2, "8": 1}

    def over(job_id: str) -> bool:
        looks[job_id] -= 1
        return looks[job_id] < 0

    monkeypatch.setattr(submission, "job_is_over", over)
    monkeypatch.setattr(submission, "show_job", lambda _: {"JobState": "RUNNING"})
    monkeypatch.setattr(submission, "explain_job", lambda job_id: f"job {job_id} failed")
    told: list[str] = []
    ending = follow(["7", "8"], tmp_path, [], Follower(), told.append, lambda _: None)
    assert told == ["job 7 running", "job 8 running"]
    assert ending == "job 7 failed; job 8 failed"


def test_outside_of_a_job_a_dry_run_shows_the_script_and_submits_nothing(
    launcher: FakeLauncher, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--launcher", "slurm", "--hosts", "2", "--cores-per-worker", "1", "--dry-run"]
    assert run("allreduce-sweep", *words) == 0
    told = capsys.readouterr().out
    assert "1 job on 2 hosts" in told
    assert "#SBATCH --nodes=2" in told
    assert not (tmp_path / "results").exists()
    assert launcher.launched == []


def test_jobs_by_size_are_shown_before_they_are_submitted(
    launcher: FakeLauncher, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--launcher", "slurm", "--hosts", "3", "--cores-per-worker", "1", "--jobs-by-size"]
    assert run("allreduce-sweep", *words, "--dry-run") == 0
    told = capsys.readouterr().out
    assert "#SBATCH --nodes=1\n" in told
    assert "#SBATCH --nodes=2\n" in told
    assert launcher.launched == []


SLURM = ["--launcher", "slurm", "--hosts", "2", "--cores-per-worker", "1"]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--launcher", "slurm", "--jobs-by-size"], "--jobs-by-size needs --hosts"),
        (["--launcher", "ssh", "--jobs-by-size"], "is for the launcher slurm, and this is ssh"),
        (["--jobs-by-size"], "is for the launcher slurm, and this is local"),
        ([*SLURM, "--jobs-by-size", "--sbatch=--dependency=singleton"], "leave --dependency out"),
        ([*SLURM, "--jobs-by-size", "--sbatch=-d singleton"], "leave --dependency out"),
        ([*SLURM, "--host-file", "hosts"], "the launcher slurm has no use for --host-file"),
        ([*SLURM, "--bandwidth", "1gbit"], "the launcher slurm has no use for --bandwidth"),
        ([*SLURM, "--hosts", "-2"], "hosts must be at least 1, got -2"),
        ([*SLURM, "--workers", "4"], "4 workers"),
    ],
)
def test_what_no_job_can_be_asked_for_is_refused_on_the_login_node(
    launcher: FakeLauncher, capsys: pytest.CaptureFixture[str], words: list[str], told: str
) -> None:
    assert run("allreduce-sweep", *words, "--dry-run") == 2
    assert told in capsys.readouterr().err
    assert launcher.launched == []


def test_a_dry_run_tells_of_a_job_that_is_still_there(
    launcher: FakeLauncher,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(submission, "live_jobs", lambda _: ["7", "8"])
    assert run("allreduce-sweep", *SLURM, "--dry-run") == 0
    told = capsys.readouterr().out
    assert "jobs 7, 8 would be followed, no other one submitted" in told
    assert "#SBATCH" not in told


def test_who_stops_following_is_told_that_the_job_goes_on(
    launcher: FakeLauncher, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def follow(*_: object) -> str:
        raise KeyboardInterrupt

    monkeypatch.setattr(submission, "live_jobs", lambda _: ["7"])
    monkeypatch.setattr(submission, "follow", follow)
    assert run("allreduce-sweep", *SLURM) == 130
    told = capsys.readouterr().err
    assert "job 7 will go on; the same command follows again, scancel 7 ends what is left" in told
