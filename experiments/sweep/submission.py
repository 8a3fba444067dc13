"""A sweep in Slurm jobs of its own: submit them from a login node, and follow them.

Decides how much is asked for, that a sweep has one job at a time, and what is shown of it.  A job
runs the same command on its own hosts; whoever follows only reads what it leaves in the results
folder, and may go away and come back.
"""

from __future__ import annotations

import json
import math
import os
import shlex
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from experiments.sweep.estimate import STEP_OVERHEAD_S, Estimate, estimate
from experiments.sweep.execute import Follower
from experiments.sweep.sweep import PlannedRun, Sweep
from launchers.fork_servers.client import ROOT, last_lines
from launchers.sites.slurm.batch import BatchJob, render_script, submit
from launchers.sites.slurm.jobs import explain_job, job_is_over, show_job
from ps_allreduce.errors import RecordFormatError, UserError
from ps_allreduce.record.files import iter_record_paths, load_record, write_atomically
from ps_allreduce.record.records import RunRecord, Status

JOB_FILE = "slurm_job.json"

POLL_S = 2.0

#: A shared file system may show a record some time after the job has ended.
LAST_LOOK_S = 5.0

FILES_PER_RUN = 3


def minutes_from(text: str | None, expected: Estimate) -> int:
    """The limit that was asked for (minutes, h:m:s or d-h:m:s as Slurm takes it), or a safe one."""
    if text is None:
        return math.ceil(min(1.5 * expected.usual_s + 600, expected.most_s + 600) / 300) * 5
    days, dash, rest = text.rpartition("-")
    parts = rest.split(":")
    if not all(part.isdecimal() for part in (*parts, days if dash else "0")) or len(parts) > 3:
        raise UserError(
            f"--time {text!r} is no time; write minutes, hours:minutes:seconds or "
            "days-hours:minutes:seconds."
        )
    numbers = [int(part) for part in parts]
    if dash:
        hours, minutes, seconds = [*numbers, 0, 0][:3]
    else:
        hours, minutes, seconds = ([0, *numbers, 0] if len(numbers) < 3 else numbers)[:3]
    return max(1, (int(days or 0) * 24 + hours) * 60 + minutes + math.ceil(seconds / 60))


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedJob:
    """A job and what its runs take."""

    job: BatchJob
    expected: Estimate


def planned_jobs(
    sweep: Sweep, left: Sequence[PlannedRun], given: dict[str, Any], sweep_dir: Path
) -> list[PlannedJob]:
    """The jobs that make the runs that are left: one, or one for each size that has any."""
    wanted = set(left)
    by_size: dict[int, Sequence[PlannedRun]] = {given["hosts"]: left}
    if sweep.job_sizes:
        by_size = {size: sweep.runs_of_job(size) for size in sweep.job_sizes}
    jobs = []
    for size, runs in by_size.items():
        expected = estimate([run for run in runs if run in wanted], STEP_OVERHEAD_S)
        if expected.num_runs:
            job = batch_job(sweep.name, given, size, expected, sweep_dir)
            jobs.append(PlannedJob(job=job, expected=expected))
    return jobs


def batch_job(
    name: str, given: dict[str, Any], num_hosts: int, expected: Estimate, sweep_dir: Path
) -> BatchJob:
    """A job for a sweep: this same command, on hosts of its own."""
    stamp = datetime.now().strftime("%Y%m%d-%H%M%S")
    return BatchJob(
        name=name,
        num_hosts=num_hosts,
        minutes=minutes_from(given["time_limit"], expected),
        partition=given["partition"],
        account=given["account"],
        constraint=given["constraint"],
        gpus_per_node=given["gpus_per_node"],
        whole_nodes=not given["shared_nodes"],
        options=tuple(given["sbatch"]),
        setup=tuple(given["setup"]),
        log=(sweep_dir / "slurm" / f"{stamp}-{num_hosts}.log").resolve(),
        folder=Path.cwd(),
        variables={"PYTHONPATH": os.environ.get("PYTHONPATH", str(ROOT))},
        command=own_command(),
    )


def own_command() -> tuple[str, ...]:
    """The words of the command that a job runs: this one, but not dry."""
    words = [word for word in sys.argv[1:] if word != "--dry-run"]
    return (sys.executable, "-m", "experiments", *words)


def render_plan(jobs: Sequence[PlannedJob], sweep_dir: Path) -> str:
    """What a submission would cost and leave behind, and the scripts."""
    lines = [_render_job(one) for one in jobs]
    if len(jobs) > 1:
        hours = sum(one.job.node_hours for one in jobs)
        lines.append(
            "each begins when the one before it has ended (--dependency=afterany, which is added "
            f"on submission); in all at most {hours:.1f} node hours"
        )
    files = FILES_PER_RUN * sum(one.expected.num_runs for one in jobs)
    lines.append(f"at most {files} files below {sweep_dir}/runs")
    return "\n\n".join(["\n".join(lines), *(render_script(one.job) for one in jobs)])


def _render_job(one: PlannedJob) -> str:
    job, expected = one.job, one.expected
    hosts = "1 host" if job.num_hosts == 1 else f"{job.num_hosts} hosts"
    return (
        f"1 job on {hosts}, limit {job.minutes} min: at most "
        f"{job.node_hours:.1f} node hours\n"
        f"{expected.num_runs} runs, about {expected.usual_s / 60:.0f} min and at "
        f"most {expected.most_s / 60:.0f} min; what does not fit is left to the next call"
    )


def live_jobs(sweep_dir: Path) -> list[str]:
    """The jobs of this sweep that wait or run, in their order.

    Raises:
        UserError: there are some, but they were asked for with another command than this one.
    """
    try:
        note = json.loads((sweep_dir / JOB_FILE).read_text(encoding="utf-8"))
        job_ids, command = [str(job["job_id"]) for job in note["jobs"]], list(note["command"])
    except (OSError, ValueError, KeyError, TypeError):
        return []
    living = [job_id for job_id in job_ids if not job_is_over(job_id)]
    if living and command != list(own_command()):
        raise UserError(
            f"job {living[0]} of this sweep is still there and was asked for otherwise "
            f"({shlex.join(command[3:])}); repeat that command to follow it, or scancel "
            f"{' '.join(living)} first."
        )
    return living


def unsettled(wanted: Sequence[PlannedRun], sweep_dir: Path, commit: str) -> list[PlannedRun]:
    """Those runs that no record of this commit has settled.

    Which hosts a job will get is unknown here; whoever wants the same runs on others of another
    kind chooses another results folder.
    """
    settled = {
        (record.experiment_id, record.repetition)
        for path in iter_record_paths(sweep_dir)
        if (record := _loaded(path)) is not None
        and record.provenance.commit == commit
        and record.status in (Status.OK, Status.INVALID)
    }
    return [run for run in wanted if (run.experiment.experiment_id, run.repetition) not in settled]


def submit_jobs(jobs: Sequence[PlannedJob], sweep_dir: Path) -> list[str]:
    """Write the scripts and submit them, each to begin after the one before; remember the jobs."""
    submitted: list[dict[str, str]] = []
    for one in jobs:
        job = replace(one.job, after=submitted[-1]["job_id"] if submitted else None)
        script = job.log.with_suffix(".sh")
        write_atomically(script, render_script(job).encode())
        submitted.append({"job_id": submit(script), "script": str(script), "log": str(job.log)})
        note = {"command": list(job.command), "jobs": submitted}
        write_atomically(sweep_dir / JOB_FILE, (json.dumps(note, indent=1) + "\n").encode())
    return [note["job_id"] for note in submitted]


def follow(
    job_ids: Sequence[str],
    sweep_dir: Path,
    known: Sequence[Path],
    follower: Follower,
    tell: Callable[[str], None],
    sleep: Callable[[float], None] = time.sleep,
) -> str:
    """Tell of every record that jobs leave, one job after the other, until all are over.

    Args:
        known: records that were there before.
        tell: told in words whenever a job waits for another reason, or begins.

    Returns:
        What Slurm says about the jobs' ends; empty if those were good ones.
    """
    seen = set(known)
    said = [_follow_one(one, sweep_dir, seen, follower, tell, sleep) for one in job_ids]
    return "; ".join(filter(None, said))


def _follow_one(
    job_id: str,
    sweep_dir: Path,
    seen: set[Path],
    follower: Follower,
    tell: Callable[[str], None],
    sleep: Callable[[float], None],
) -> str:
    state = ""
    while True:
        over = job_is_over(job_id)
        if over:
            sleep(LAST_LOOK_S)
        for path in iter_record_paths(sweep_dir):
            if path not in seen and (record := _loaded(path)) is not None:
                seen.add(path)
                follower.finish(record, "")
        if over:
            return explain_job(job_id)
        if state != (state := _state(job_id)):
            tell(state)
        follower.stage(state)
        sleep(POLL_S)


def made_by(job_ids: Sequence[str], sweep_dir: Path) -> list[RunRecord]:
    """All records of jobs, those of runs that an earlier job was interrupted in not among them."""
    found = (_loaded(path) for path in iter_record_paths(sweep_dir))
    return [record for record in found if record is not None and record.job_id in job_ids]


def last_output(sweep_dir: Path) -> str:
    """The end of what the sweep's last job wrote."""
    logs = sorted((sweep_dir / "slurm").glob("*.log"), key=lambda log: log.stat().st_mtime)
    return last_lines(logs[-1]) if logs else "(no log)"


def _loaded(path: Path) -> RunRecord | None:
    try:
        return load_record(path)
    except RecordFormatError:
        return None  # not all of it has arrived


def _state(job_id: str) -> str:
    job = show_job(job_id)
    state, reason = job.get("JobState", "unknown"), job.get("Reason", "None")
    detail = f" ({reason})" if state == "PENDING" and reason != "None" else ""
    return f"job {job_id} {state.lower()}{detail}"


def all_well(made: Sequence[RunRecord], ending: str) -> bool:
    """A job came to its end and every run in it to a good one."""
    return bool(made) and not ending and all(record.status is Status.OK for record in made)
