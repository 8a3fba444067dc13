"""The jobs of a batch system that make a sweep: plan, submit, remember and follow them.

Decides how much is asked for, that a sweep has one job at a time, and what is shown of it.  A job
runs the same command on its own hosts.  Whoever follows only reads what a job leaves in the results
folder, and may go away and come back.
"""

from __future__ import annotations

import math
import os
import shlex
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

from experiments.sweep.session import RunListener
from experiments.sweep.sweep import (
    JOB_OVERHEAD_S,
    ExpectedDuration,
    PlannedRun,
    Sweep,
    expected_duration,
)
from launchers.fork_servers.client import last_lines
from launchers.scheduler import BatchJob, Scheduler
from launchers.settings import LauncherSettings
from ps_allreduce.errors import UserError
from ps_allreduce.record.files import (
    iter_record_paths,
    read_json,
    read_run,
    write_atomically,
    write_json,
)
from ps_allreduce.record.provenance import ROOT
from ps_allreduce.record.records import RunRecord

FILES_PER_RUN = 3

JOB_FILE = "slurm_job.json"

POLL_S = 2.0

#: A shared file system may show a record some time after the job has ended.
LAST_LOOK_S = 5.0


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
    jobs, wanted = [], set(missing)
    for size, runs in by_size.items():
        to_make = [run for run in runs if run in wanted]
        if to_make:
            jobs.append(_planned_job(sweep, to_make, settings, size, sweep_dir))
    return jobs


def _planned_job(
    sweep: Sweep,
    runs: Sequence[PlannedRun],
    settings: LauncherSettings,
    num_hosts: int,
    sweep_dir: Path,
) -> PlannedJob:
    """A job for some runs of a sweep: this same command, on hosts of its own."""
    expected = expected_duration(sweep, runs, JOB_OVERHEAD_S)
    stamp = datetime.now().strftime("%Y%m%d-%H%M%S")
    job = BatchJob(
        name=sweep.name,
        num_hosts=num_hosts,
        minutes=settings.time_limit or safe_limit(expected),
        settings=settings,
        log=(sweep_dir / "slurm" / f"{stamp}-{num_hosts}.log").resolve(),
        folder=Path.cwd(),
        variables={"PYTHONPATH": os.environ.get("PYTHONPATH", str(ROOT))},
        command=this_command(),
    )
    return PlannedJob(job=job, expected=expected)


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
    hosts += f" and {job.num_ps_hosts} for servers" if job.num_ps_hosts else ""
    return (
        f"1 job on {hosts}, limit {job.minutes} min: at most "
        f"{job.node_hours:.1f} node hours\n"
        f"at most {expected.num_runs} runs, {expected}; the next call makes what does not fit"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepJobs:
    """The jobs of one sweep.

    Attributes:
        sweep_dir: where they leave their records, and where they are remembered.
        sleep: waits for so many seconds.
    """

    scheduler: Scheduler
    sweep_dir: Path
    sleep: Callable[[float], None] = time.sleep

    def submit(self, jobs: Sequence[PlannedJob]) -> list[str]:
        """Write the scripts and submit them, each to begin after the one before; remember them."""
        submitted: list[dict[str, str]] = []
        for one in jobs:
            job = replace(one.job, after=submitted[-1]["job_id"] if submitted else None)
            script = job.log.with_suffix(".sh")
            write_atomically(script, self.scheduler.script(job).encode())
            job_id = self.scheduler.submit(script)
            submitted.append({"job_id": job_id, "script": str(script), "log": str(job.log)})
            note = {"command": list(job.command), "jobs": submitted}
            write_json(self.sweep_dir / JOB_FILE, note)
        return [note["job_id"] for note in submitted]

    def live(self) -> list[str]:
        """The jobs that wait or run, in their order.

        Raises:
            UserError: there are some, but they were asked for with another command than this one.
        """
        try:
            note = read_json(self.sweep_dir / JOB_FILE)
            job_ids, command = [str(job["job_id"]) for job in note["jobs"]], list(note["command"])
        except (OSError, ValueError, KeyError, TypeError):
            return []
        living = [job_id for job_id in job_ids if not self.scheduler.is_over(job_id)]
        if living and command != list(this_command()):
            raise UserError(
                f"job {living[0]} of this sweep is still there, but another command asked for it: "
                f"{shlex.join(command[3:])}. Repeat that command to follow the job, or first end "
                f"it with {self.scheduler.cancel_command(living)}."
            )
        return living

    def follow(
        self,
        job_ids: Sequence[str],
        known: Sequence[Path],
        listener: RunListener,
        tell: Callable[[str], None],
    ) -> str:
        """Tell of every record that jobs leave, one job after the other, until all are over.

        Args:
            known: records that were there before.
            tell: told in words whenever a job waits for another reason, or begins.

        Returns:
            What the scheduler says about the jobs' ends; empty if those were good ones.
        """
        seen, state, endings = set(known), "", []
        for job_id in job_ids:
            while not self.scheduler.is_over(job_id):
                self._tell_of_new(seen, listener)
                if state != (state := self.scheduler.state(job_id)):
                    tell(state)
                listener.stage(state)
                self.sleep(POLL_S)
            self.sleep(LAST_LOOK_S)
            self._tell_of_new(seen, listener)
            endings.append(self.scheduler.explain(job_id))
        return "; ".join(filter(None, endings))

    def _tell_of_new(self, seen: set[Path], listener: RunListener) -> None:
        for path in iter_record_paths(self.sweep_dir):
            if path not in seen and isinstance(record := read_run(path), RunRecord):
                seen.add(path)
                listener.finish(record, "")

    def made_by(self, job_ids: Sequence[str]) -> list[RunRecord]:
        """All records of jobs, without runs in which an earlier job was interrupted."""
        read = (read_run(path) for path in iter_record_paths(self.sweep_dir))
        return [one for one in read if isinstance(one, RunRecord) and one.job_id in job_ids]

    def last_output(self) -> str:
        """The end of what the last job wrote."""
        logs = sorted((self.sweep_dir / "slurm").glob("*.log"), key=lambda log: log.stat().st_mtime)
        return last_lines(logs[-1]) if logs else "(no log)"
