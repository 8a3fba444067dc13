"""A sweep in jobs of its own: what is asked for, that there is one at a time, what is shown."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from experiments.sweep import jobs as jobs_module
from experiments.sweep.jobs import (
    JOB_FILE,
    PlannedJob,
    SweepJobs,
    planned_jobs,
    render_jobs,
    safe_limit,
)
from experiments.sweep.session import RunListener
from experiments.sweep.sweep import (
    LAUNCH_ALLOWANCE_S,
    TYPICAL_WINDOW_S,
    ExpectedDuration,
    Sweep,
    expected_duration,
    job_sizes,
)
from launchers.settings import LauncherSettings
from ps_allreduce.errors import UserError
from ps_allreduce.point.measurement import Measurement
from ps_allreduce.point.resources import Spread
from ps_allreduce.point.strategies import AllReduce, Single
from ps_allreduce.record.files import RunFiles
from ps_allreduce.record.records import Status
from tests.experiments.sweeps import PROFILE, SWEEP, FakeScheduler, Listener, ended, leave
from tests.fakes import make_experiment, make_record

EXPECTED = ExpectedDuration(num_runs=10, likely_s=1000.0, most_s=4000.0)


def test_a_sweep_takes_what_its_runs_take() -> None:
    expected = expected_duration(SWEEP, SWEEP.runs(), 20.0)
    assert expected.num_runs == 4
    assert expected.likely_s == 4 * (PROFILE.measurement.warmup.likely_s + TYPICAL_WINDOW_S + 20.0)
    assert expected.most_s == 4 * (PROFILE.limit_s + LAUNCH_ALLOWANCE_S)


def test_a_run_that_measures_for_long_is_given_that_time() -> None:
    measurement = Measurement(measured_s=100.0)
    long = make_experiment(measurement=measurement)
    once = replace(SWEEP, points=(long,), profile=replace(PROFILE, repetitions=1))
    expected = expected_duration(once, once.runs(), 0.0)
    assert expected.likely_s == measurement.warmup.likely_s + 100.0


def test_a_limit_that_nobody_stated_is_no_longer_than_the_runs_may_take() -> None:
    assert safe_limit(EXPECTED) == 35
    assert safe_limit(replace(EXPECTED, most_s=600.0)) == 20


def settings(**changes: Any) -> LauncherSettings:
    return LauncherSettings(launcher="slurm", hosts=4, **changes)


def jobs_of(sweep_dir: Path, sweep: Sweep = SWEEP, **changes: Any) -> list[PlannedJob]:
    """The jobs that make all runs of a sweep."""
    return planned_jobs(sweep, sweep.runs(), settings(**changes), 4, sweep_dir)


def jobs_in(sweep_dir: Path, **of_scheduler: Any) -> SweepJobs:
    """Jobs that take no time."""
    scheduler = FakeScheduler(**of_scheduler)
    return SweepJobs(scheduler=scheduler, sweep_dir=sweep_dir, sleep=lambda _: None)


def test_the_job_runs_this_same_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["experiments", "compare", "--launcher", "slurm", "--dry-run"])
    (planned,) = jobs_of(tmp_path, time_limit=30, partition="gpu")
    job = planned.job
    assert job.command[1:] == ("-m", "experiments", "compare", "--launcher", "slurm")
    assert (job.num_hosts, job.minutes, job.settings.partition) == (4, 30, "gpu")
    assert job.log.parent == tmp_path / "slurm"
    (planned,) = jobs_of(tmp_path)
    assert planned.job.minutes == safe_limit(planned.expected)


def test_a_plan_says_what_it_costs_and_what_it_leaves(tmp_path: Path) -> None:
    plan = render_jobs(jobs_of(tmp_path, time_limit=30), FakeScheduler(), tmp_path)
    assert "1 job on 4 hosts, limit 30 min: at most 2.0 node hours" in plan
    assert "4 runs, about 2 min and at most 16 min" in plan
    assert f"at most 12 files below {tmp_path}/runs" in plan
    assert plan.endswith("4 hosts, after None\n")


def test_a_submitted_job_is_remembered(tmp_path: Path) -> None:
    assert jobs_in(tmp_path).submit(jobs_of(tmp_path)) == ["7"]
    (note,) = json.loads((tmp_path / JOB_FILE).read_text())["jobs"]
    assert note["job_id"] == "7"
    assert Path(note["script"]).suffix == ".sh"
    assert Path(note["script"]).read_text() == "4 hosts, after None\n"


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
    states = {} if over else {"17": ["running"], "18": ["waiting"]}
    if text is not None:
        (tmp_path / JOB_FILE).write_text(text)
    monkeypatch.setattr(jobs_module, "this_command", lambda: ("same",))
    assert jobs_in(tmp_path, states=states).live() == expected


def test_a_job_of_another_command_is_not_followed(tmp_path: Path) -> None:
    command = ["python", "-m", "experiments", "compare"]
    note = {"jobs": [{"job_id": "17"}, {"job_id": "18"}], "command": command}
    (tmp_path / JOB_FILE).write_text(json.dumps(note))
    states = {"17": ["running"], "18": ["waiting"]}
    told = r"another command asked for it: compare\. Repeat .* end it with cancel 17 18\."
    with pytest.raises(UserError, match=told):
        jobs_in(tmp_path, states=states).live()


def test_who_follows_a_job_hears_of_every_new_record(tmp_path: Path) -> None:
    known = leave(tmp_path, repetition=0)
    listener, coming = Listener(), iter([1, 2, 3])
    told: list[str] = []

    def sleep(_: float) -> None:
        leave(tmp_path, repetition=next(coming))

    paths = [RunFiles.of(tmp_path, known.experiment_id, 0, 0).record]
    jobs = replace(jobs_in(tmp_path, states={"17": ["waiting", "running"]}), sleep=sleep)
    assert jobs.follow(["17"], paths, listener, told.append) == ""
    assert told == ["waiting", "running"]
    assert listener.heard == ["waiting", "1-0 ok", "running", "2-0 ok", "3-0 ok"]


def test_a_record_that_has_not_arrived_whole_is_waited_for(tmp_path: Path) -> None:
    path = RunFiles.of(tmp_path, make_record().experiment_id, 0, 0).record
    path.parent.mkdir(parents=True)
    path.write_text("{")
    whole = iter([False, True])

    def sleep(_: float) -> None:
        if next(whole):
            path.unlink()
            leave(tmp_path)

    listener = Listener()
    jobs = jobs_in(tmp_path, states={"17": ["running"]}, ending=lambda _: "out of time")
    ending = replace(jobs, sleep=sleep).follow(["17"], [], listener, lambda _: None)
    assert "0-0 ok" in listener.heard
    assert ending == "out of time"


def test_runs_that_an_earlier_job_was_interrupted_in_are_not_this_jobs(tmp_path: Path) -> None:
    leave(tmp_path, job_id="4", **ended(Status.INTERRUPTED))
    again = leave(tmp_path, job_id="17", attempt=1)
    assert jobs_in(tmp_path).made_by(["17"]) == [again]


BY_SIZE = Sweep(
    name="compare",
    points=tuple(
        make_experiment(strategy, workers, spread=Spread())
        for strategy, workers in ((Single, 1), (AllReduce, 1), (AllReduce, 2), (AllReduce, 3))
    ),
    profile=PROFILE,
    seed=1,
    job_sizes=job_sizes(3),
)


def test_a_job_for_each_size_begins_after_the_one_before(tmp_path: Path) -> None:
    planned = jobs_of(tmp_path, BY_SIZE)
    assert [one.job.num_hosts for one in planned] == [1, 2, 3]
    assert [one.expected.num_runs for one in planned] == [4, 4, 4]
    plan = render_jobs(planned, FakeScheduler(), tmp_path)
    assert "1 job on 1 host, limit" in plan
    assert "Each job begins when the one before it has ended" in plan
    assert jobs_in(tmp_path).submit(planned) == ["7", "8", "9"]
    notes = json.loads((tmp_path / JOB_FILE).read_text())["jobs"]
    scripts = [Path(note["script"]).read_text() for note in notes]
    assert scripts == ["1 hosts, after None\n", "2 hosts, after 7\n", "3 hosts, after 8\n"]


def test_a_size_of_which_all_runs_are_there_gets_no_job(tmp_path: Path) -> None:
    missing = [run for run in BY_SIZE.runs() if run not in BY_SIZE.runs_of_job(2)]
    planned = planned_jobs(BY_SIZE, missing, settings(), 3, tmp_path)
    assert [one.job.num_hosts for one in planned] == [1, 3]
    assert planned_jobs(BY_SIZE, [], settings(), 3, tmp_path) == []


def test_jobs_of_a_chain_are_followed_one_after_the_other(tmp_path: Path) -> None:
    states = {"7": ["job 7 running", "job 7 running"], "8": ["job 8 running"]}
    jobs = jobs_in(tmp_path, states=states, ending=lambda job_id: f"job {job_id} failed")
    told: list[str] = []
    ending = jobs.follow(["7", "8"], [], RunListener(), told.append)
    assert told == ["job 7 running", "job 8 running"]
    assert ending == "job 7 failed; job 8 failed"
