"""A sweep from the command line: here and now, or in jobs of a batch system.

Decides which of the two, and what is said at the end.
"""

from __future__ import annotations

from dataclasses import replace

import click
from rich.console import Console

from experiments.cli import surroundings
from experiments.cli.job_command import submit_sweep
from experiments.cli.plan import check_jobs_by_size, plan_sweep, render_sweep
from experiments.cli.requests import StudyRequest
from experiments.sweep.definition import Choices, read_choices
from experiments.sweep.duration import OVERHEAD_S
from experiments.sweep.execute import SessionResult, Stop, block_of, execute, has_time
from experiments.sweep.folder import check_writable
from experiments.sweep.history import unsettled
from experiments.sweep.progress import SweepProgress
from experiments.sweep.sweep import PlannedRun, Sweep
from launchers.protocol import Capacity
from launchers.run.launcher import HostsLauncher
from launchers.sites import site_kind
from ps_allreduce.errors import UserError
from ps_allreduce.record.records import Status

NO_TIME = "The job's time is up: no further run could finish. The same command goes on."


def run_study(request: StudyRequest) -> int:
    """Run the sweep of a study; return the exit status."""
    console = Console(stderr=True)
    check_jobs_by_size(request)
    scheduler = site_kind(request.launcher.launcher).scheduler
    if scheduler is not None:
        scheduler.check_options(request.launcher, jobs_by_size=request.sweep.jobs_by_size)
        if not scheduler.inside_job():
            return submit_sweep(request, scheduler, console)
    launcher = surroundings.launcher_of(request.launcher)
    with launcher, SweepProgress(console) as progress:
        if not has_time(launcher, request.sweep.profile):
            console.print(NO_TIME, highlight=False, soft_wrap=True)
            return 1
        progress.stage("preparing")
        return _run_here(request, launcher, progress, console)


def _run_here(
    request: StudyRequest, launcher: HostsLauncher, progress: SweepProgress, console: Console
) -> int:
    commit, sweep_dir = surroundings.commit(), request.sweep_dir
    choices = read_choices(sweep_dir, request.identity, block_of(launcher, commit))
    sweep, runs = _for_these_hosts(request, launcher, choices, console)
    if request.sweep.dry_run:
        check_writable(sweep_dir)
        click.echo(render_sweep(sweep, runs, unsettled(runs, sweep_dir, commit), OVERHEAD_S))
        return 0
    result = execute(sweep, runs, launcher, sweep_dir, commit, progress, choices)
    return _conclude(result, console)


def _for_these_hosts(
    request: StudyRequest, launcher: HostsLauncher, choices: Choices, console: Console
) -> tuple[Sweep, list[PlannedRun]]:
    """The sweep, and those of its runs that are to be made on these hosts."""
    capacity, hosts = launcher.capacity(), request.launcher.hosts
    if request.sweep.jobs_by_size and hosts is not None:
        whole = replace(capacity, num_hosts=hosts)
        sweep = plan_sweep(request, whole, launcher.describe, choices, console)
        return sweep, _of_this_job(sweep, capacity)
    has_jobs = site_kind(request.launcher.launcher).scheduler is not None
    if has_jobs and hosts not in (None, capacity.num_hosts):
        console.print(
            f"This job has {capacity.num_hosts} hosts, which are used; --hosts counts where a "
            "job is submitted.",
            highlight=False,
        )
    sweep = plan_sweep(request, capacity, launcher.describe, choices, console)
    return sweep, sweep.runs()


def _of_this_job(sweep: Sweep, capacity: Capacity) -> list[PlannedRun]:
    runs = sweep.runs_of_job(capacity.num_hosts)
    if not runs:
        raise UserError(
            f"no point of this sweep belongs to the job of {capacity.num_hosts} hosts; leave "
            "--jobs-by-size out to use these hosts for the whole sweep."
        )
    return runs


def _conclude(result: SessionResult, console: Console) -> int:
    counts = {status: sum(r.status is status for r in result.made) for status in Status}
    ends = ", ".join(f"{count} {status}" for status, count in counts.items() if count)
    console.print(
        f"{len(result.made)} runs made ({ends or 'none needed'}), {result.kept} kept; "
        f"{result.wall_s:.0f} s, useful fraction {result.useful_fraction:.2f} "
        "(share of the time inside warm-up and measured steps)",
        highlight=False,
    )
    if result.stop is Stop.NO_TIME:
        console.print(NO_TIME, highlight=False, soft_wrap=True)
        return 1
    if result.stop is Stop.INTERRUPTED:
        console.print("Interrupted; the same command goes on.", highlight=False)
        return 130
    return 1 if any(record.status is not Status.OK for record in result.made) else 0
