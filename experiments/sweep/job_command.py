"""A sweep from a login node: submit jobs for it, or find those that there are, and follow them.

Decides what is said on the way and at the end; how jobs are described, remembered and followed is
decided in `submission`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from experiments.sweep import submission
from experiments.sweep.estimate import STEP_OVERHEAD_S
from experiments.sweep.folder import check_writable
from experiments.sweep.plan import plan_sweep, render_sweep
from experiments.sweep.progress import SweepProgress
from experiments.sweep.source_state import source_state
from launchers import OF_SLURM, SLURM
from launchers.options import settings_from
from launchers.protocol import Capacity
from launchers.sites.local import LocalLauncher
from launchers.sites.slurm.batch import smallest_node
from ps_allreduce.errors import UserError, at_least
from ps_allreduce.record.files import iter_record_paths

#: Exit status of a follower that was asked to stop.
INTERRUPTED = 130

NOTHING_LEFT = "All runs of this sweep are there; no job is submitted."


def submit_sweep(name: str, given: dict[str, Any], console: Console) -> int:
    """Submit jobs for the sweep, or find those that there are; follow them."""
    settings_from(given).refuse_others(SLURM, OF_SLURM)
    sweep_dir: Path = given["results"] / name
    known = list(iter_record_paths(sweep_dir))
    with LocalLauncher(given["results"] / "data", allow_login_node=True) as describer:
        sweep = plan_sweep(name, given, _asked_for(given), describer.describe, console)
    left = submission.unsettled(sweep.runs(), sweep_dir, source_state())
    jobs = submission.planned_jobs(sweep, left, given, sweep_dir)
    job_ids = submission.live_jobs(sweep_dir)
    plan = submission.render_plan(jobs, sweep_dir) if jobs else NOTHING_LEFT
    if given["dry_run"]:
        check_writable(sweep_dir)
        click.echo(render_sweep(sweep, sweep.runs(), left, STEP_OVERHEAD_S))
        there = f"{_jobs_text(job_ids)} would be followed, no other one submitted."
        click.echo(there if job_ids else plan)
        return 0
    if not job_ids:
        console.print(plan, highlight=False, markup=False, soft_wrap=True)
        job_ids = submission.submit_jobs(jobs, sweep_dir)
    if not job_ids:
        return 0
    try:
        with SweepProgress(console) as progress:
            progress.begin(len(left), len(sweep.runs()) - len(left))
            ending = _follow(job_ids, known, sweep_dir, progress, console)
    except KeyboardInterrupt:
        console.print(f"No longer following: {_stays_text(job_ids)}.", highlight=False)
        return INTERRUPTED
    return _conclude_jobs(job_ids, ending, sweep_dir, console)


def _follow(
    job_ids: Sequence[str],
    known: Sequence[Path],
    sweep_dir: Path,
    progress: SweepProgress,
    console: Console,
) -> str:
    text = f"Following {_jobs_text(job_ids)}. After Ctrl-C {_stays_text(job_ids)}."
    console.print(text, highlight=False, soft_wrap=True)
    return submission.follow(job_ids, sweep_dir, known, progress, console.print)


def _conclude_jobs(job_ids: Sequence[str], ending: str, sweep_dir: Path, console: Console) -> int:
    made = submission.made_by(job_ids, sweep_dir)
    console.print(f"{len(made)} runs were made by {_jobs_text(job_ids)}.", highlight=False)
    if ending:
        console.print(f"{ending}; the same command goes on in a new job.", highlight=False)
    if not made:
        text = f"Its output is in {sweep_dir}/slurm:\n{submission.last_output(sweep_dir)}"
        console.print(text, highlight=False, markup=False, soft_wrap=True)
    return 0 if submission.all_well(made, ending) else 1


def _stays_text(job_ids: Sequence[str]) -> str:
    return (
        f"{_jobs_text(job_ids)} will go on; the same command follows again, scancel "
        f"{' '.join(job_ids)} ends what is left"
    )


def _jobs_text(job_ids: Sequence[str]) -> str:
    return f"job {job_ids[0]}" if len(job_ids) == 1 else f"jobs {', '.join(job_ids)}"


def _asked_for(given: dict[str, Any]) -> Capacity:
    """What the hosts will offer that a job asks for."""
    if given["hosts"] is None:
        raise UserError(
            "outside of a Slurm job the launcher slurm needs --hosts, the number of hosts to ask "
            "for; or run the same command inside salloc."
        )
    at_least(1, hosts=given["hosts"])
    cores = given["cores_per_worker"] or smallest_node(given["partition"])
    return Capacity(num_hosts=given["hosts"], cores_per_host=cores)
