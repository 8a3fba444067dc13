"""A sweep from the command line: here and now, or in a Slurm job of its own.

Decides which of the two, and what is said at the end.
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

import click
from rich.console import Console

from experiments.cli.given import profile_from
from experiments.studies.request import Describe
from experiments.sweep.estimate import OVERHEAD_S
from experiments.sweep.execute import Result, Stop, execute, has_time
from experiments.sweep.folder import check_writable
from experiments.sweep.job_command import submit_sweep
from experiments.sweep.plan import check_jobs_by_size, plan_sweep, render_sweep
from experiments.sweep.progress import SweepProgress
from experiments.sweep.source_state import source_state
from experiments.sweep.submission import unsettled
from experiments.sweep.sweep import PlannedRun, Sweep
from launchers import SLURM, make_launcher
from launchers.options import settings_from
from launchers.protocol import Capacity
from ps_allreduce.errors import UserError
from ps_allreduce.record.records import Status

NO_TIME = "The job's time is up: no further run could finish. The same command goes on."


def run_sweep(name: str, given: dict[str, Any]) -> int:
    """Run the sweep of that name; return the exit status."""
    console = Console(stderr=True)
    check_jobs_by_size(given)
    if given["launcher"] == SLURM and not os.environ.get("SLURM_JOB_ID"):
        return submit_sweep(name, given, console)
    launcher = make_launcher(given["launcher"], settings_from(given))
    with launcher, SweepProgress(console) as progress:
        if not has_time(launcher, profile_from(given)):
            console.print(NO_TIME, highlight=False, soft_wrap=True)
            return 1
        progress.stage("preparing")
        capacity = launcher.capacity()
        sweep_dir = given["results"] / name
        sweep, wanted = _for_this_session(name, given, capacity, launcher.describe, console)
        if given["dry_run"]:
            check_writable(sweep_dir)
            left = unsettled(wanted, sweep_dir, source_state())
            click.echo(render_sweep(sweep, wanted, left, OVERHEAD_S))
            return 0
        result = execute(sweep, wanted, launcher, sweep_dir, source_state(), progress)
    return _conclude(result, console)


def _for_this_session(
    name: str, given: dict[str, Any], capacity: Capacity, describe: Describe, console: Console
) -> tuple[Sweep, list[PlannedRun]]:
    """The sweep, and those of its runs that are to be made on these hosts."""
    if given["jobs_by_size"]:
        whole = replace(capacity, num_hosts=given["hosts"])
        sweep = plan_sweep(name, given, whole, describe, console)
        wanted = sweep.runs_of_job(capacity.num_hosts)
        if not wanted:
            raise UserError(
                f"no point of this sweep belongs to the job of {capacity.num_hosts} hosts; leave "
                "--jobs-by-size out to use these hosts for the whole sweep."
            )
        return sweep, wanted
    if given["launcher"] == SLURM and given["hosts"] not in (None, capacity.num_hosts):
        console.print(
            f"This job has {capacity.num_hosts} hosts, which are used; --hosts counts where a "
            "job is submitted.",
            highlight=False,
        )
    sweep = plan_sweep(name, given, capacity, describe, console)
    return sweep, sweep.runs()


def _conclude(result: Result, console: Console) -> int:
    counts = {status: sum(r.status is status for r in result.made) for status in Status}
    told = ", ".join(f"{count} {status}" for status, count in counts.items() if count)
    console.print(
        f"{len(result.made)} runs made ({told or 'none needed'}), {result.kept} kept; "
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
