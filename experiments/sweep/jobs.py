"""The jobs of a batch system that make a sweep, and what they cost.

Decides how much is asked for.  A job runs the same command on its own hosts.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from experiments.sweep.duration import JOB_OVERHEAD_S, ExpectedDuration, expected_duration
from experiments.sweep.sweep import PlannedRun, Sweep
from launchers.scheduler import BatchJob, Scheduler
from launchers.settings import LauncherSettings
from ps_allreduce.record.provenance import ROOT

FILES_PER_RUN = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedJob:
    """A job and how long its runs take."""

    job: BatchJob
    expected: ExpectedDuration


def planned_jobs(
    sweep: Sweep,
    missing: Sequence[PlannedRun],
    settings: LauncherSettings,
    num_hosts: int,
    sweep_dir: Path,
) -> list[PlannedJob]:
    """The jobs that make the missing runs: one, or one for each size that has any."""
    by_size: dict[int, Sequence[PlannedRun]] = {num_hosts: missing}
    if sweep.job_sizes:
        by_size = {size: sweep.runs_of_job(size) for size in sweep.job_sizes}
    jobs = []
    for size, runs in by_size.items():
        to_make = [run for run in runs if run in set(missing)]
        if to_make:
            expected = expected_duration(to_make, sweep.profile, JOB_OVERHEAD_S)
            job = batch_job(sweep.name, settings, size, expected, sweep_dir)
            jobs.append(PlannedJob(job=job, expected=expected))
    return jobs


def batch_job(
    name: str,
    settings: LauncherSettings,
    num_hosts: int,
    expected: ExpectedDuration,
    sweep_dir: Path,
) -> BatchJob:
    """A job for a sweep: this same command, on hosts of its own."""
    stamp = datetime.now().strftime("%Y%m%d-%H%M%S")
    return BatchJob(
        name=name,
        num_hosts=num_hosts,
        minutes=settings.time_limit or safe_limit(expected),
        settings=settings,
        log=(sweep_dir / "slurm" / f"{stamp}-{num_hosts}.log").resolve(),
        folder=Path.cwd(),
        variables={"PYTHONPATH": os.environ.get("PYTHONPATH", str(ROOT))},
        command=this_command(),
    )


def safe_limit(expected: ExpectedDuration) -> int:
    """Minutes, a multiple of five: half as much again as is likely, and ten minutes to begin."""
    return math.ceil(min(1.5 * expected.likely_s + 600, expected.most_s + 600) / 300) * 5


def this_command() -> tuple[str, ...]:
    """The words of the command that a job runs: this one, but not dry."""
    words = [word for word in sys.argv[1:] if word != "--dry-run"]
    return (sys.executable, "-m", "experiments", *words)


def render_jobs(jobs: Sequence[PlannedJob], scheduler: Scheduler, sweep_dir: Path) -> str:
    """What a submission would cost and leave behind, and the scripts."""
    lines = [_render_job(one) for one in jobs]
    if len(jobs) > 1:
        hours = sum(one.job.node_hours for one in jobs)
        lines.append(
            "Each job begins when the one before it has ended, which is added to the scripts on "
            f"submission; in all at most {hours:.1f} node hours"
        )
    files = FILES_PER_RUN * sum(one.expected.num_runs for one in jobs)
    lines.append(f"at most {files} files below {sweep_dir}/runs")
    return "\n\n".join(["\n".join(lines), *(scheduler.script(one.job) for one in jobs)])


def _render_job(one: PlannedJob) -> str:
    job, expected = one.job, one.expected
    hosts = "1 host" if job.num_hosts == 1 else f"{job.num_hosts} hosts"
    return (
        f"1 job on {hosts}, limit {job.minutes} min: at most "
        f"{job.node_hours:.1f} node hours\n"
        f"{expected.num_runs} runs, about {expected.likely_s / 60:.0f} min and at "
        f"most {expected.most_s / 60:.0f} min; the next call makes what does not fit"
    )
