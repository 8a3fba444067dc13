"""A sweep from a login node: submit jobs for it, or find those that there are, and follow them.

Decides what is said on the way and at the end.  What a job asks for is decided in `sweep.jobs`, how
jobs are remembered and followed in `sweep.submission`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click
from rich.console import Console

from experiments.cli import surroundings
from experiments.cli.plan import plan_sweep, render_sweep
from experiments.cli.requests import StudyRequest
from experiments.sweep.definition import read_choices
from experiments.sweep.duration import JOB_OVERHEAD_S
from experiments.sweep.folder import check_writable
from experiments.sweep.history import unsettled
from experiments.sweep.jobs import planned_jobs, render_jobs
from experiments.sweep.progress import SweepProgress
from experiments.sweep.submission import SweepJobs, all_well
from experiments.sweep.sweep import Sweep
from launchers.protocol import Capacity
from launchers.scheduler import Scheduler
from ps_allreduce.errors import UserError, at_least
from ps_allreduce.record.files import iter_record_paths

#: Exit status of a follower that was asked to stop.
INTERRUPTED = 130

NOTHING_MISSING = "All runs of this sweep are there; no job is submitted."


def submit_sweep(request: StudyRequest, scheduler: Scheduler, console: Console) -> int:
    """Submit jobs for the sweep, or find those that there are; follow them."""
    sweep_dir = request.sweep_dir
    capacity = _capacity_of(request, scheduler)
    sweep = _planned(request, capacity, console)
    missing = unsettled(sweep.runs(), sweep_dir, surroundings.commit())
    planned = planned_jobs(sweep, missing, request.launcher, capacity.num_hosts, sweep_dir)
    jobs = SweepJobs(scheduler=scheduler, sweep_dir=sweep_dir)
    job_ids = jobs.live()
    costs = render_jobs(planned, scheduler, sweep_dir) if planned else NOTHING_MISSING
    if request.sweep.dry_run:
        check_writable(sweep_dir)
        click.echo(render_sweep(sweep, sweep.runs(), missing, JOB_OVERHEAD_S))
        followed = f"{_jobs_text(job_ids)} would be followed, no other one submitted."
        click.echo(followed if job_ids else costs)
        return 0
    known = list(iter_record_paths(sweep_dir))
    if not job_ids:
        console.print(costs, highlight=False, markup=False, soft_wrap=True)
        job_ids = jobs.submit(planned)
    if not job_ids:
        return 0
    num_kept = len(sweep.runs()) - len(missing)
    return _follow(jobs, job_ids, known, (len(missing), num_kept), console)


def _planned(request: StudyRequest, capacity: Capacity, console: Console) -> Sweep:
    """The sweep on the hosts that will be asked for; their block is known when they are there."""
    choices = read_choices(request.sweep_dir, request.identity, None)
    with surroundings.this_machine(request.launcher.results) as launcher:
        return plan_sweep(request, capacity, launcher.describe, choices, console)


def _capacity_of(request: StudyRequest, scheduler: Scheduler) -> Capacity:
    hosts = request.launcher.hosts
    if hosts is None:
        raise UserError(
            f"outside of a job the launcher {request.launcher.launcher} needs --hosts, the number "
            "of hosts to ask for; or run the same command inside a job."
        )
    at_least(1, hosts=hosts)
    cores = request.sweep.cores_per_worker or scheduler.cores_per_node(request.launcher)
    return Capacity(num_hosts=hosts, cores_per_host=cores)


def _follow(
    jobs: SweepJobs,
    job_ids: Sequence[str],
    known: Sequence[Path],
    missing_and_kept: tuple[int, int],
    console: Console,
) -> int:
    text = f"Following {_jobs_text(job_ids)}. After Ctrl-C {_stays_text(jobs, job_ids)}."
    try:
        with SweepProgress(console) as progress:
            progress.begin(*missing_and_kept)
            console.print(text, highlight=False, soft_wrap=True)
            ending = jobs.follow(job_ids, known, progress, console.print)
    except KeyboardInterrupt:
        console.print(f"No longer following: {_stays_text(jobs, job_ids)}.", highlight=False)
        return INTERRUPTED
    return _conclude(jobs, job_ids, ending, console)


def _conclude(jobs: SweepJobs, job_ids: Sequence[str], ending: str, console: Console) -> int:
    made = jobs.made_by(job_ids)
    console.print(f"{len(made)} runs were made by {_jobs_text(job_ids)}.", highlight=False)
    if ending:
        console.print(f"{ending}; the same command goes on in a new job.", highlight=False)
    if not made:
        text = f"Its output is in {jobs.sweep_dir}/slurm:\n{jobs.last_output()}"
        console.print(text, highlight=False, markup=False, soft_wrap=True)
    return 0 if all_well(made, ending) else 1


def _stays_text(jobs: SweepJobs, job_ids: Sequence[str]) -> str:
    return (
        f"{_jobs_text(job_ids)} will go on; the same command follows again, "
        f"{jobs.scheduler.cancel_command(job_ids)} ends what is left"
    )


def _jobs_text(job_ids: Sequence[str]) -> str:
    return f"job {job_ids[0]}" if len(job_ids) == 1 else f"jobs {', '.join(job_ids)}"
