"""A sweep from the command line: here and now, or in a Slurm job of its own.

Decides which of the two, and what is said at the end.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from experiments import submission
from experiments.commit import source_state
from experiments.execute import Result, Stop, execute, has_time
from experiments.given import (
    choice,
    dealing_from,
    device_from,
    profile_from,
    scale_from,
    spread_from,
    wire_from,
    workload_from,
)
from experiments.profiles import models_of
from experiments.progress import SweepProgress
from experiments.request import Describe, Request
from experiments.studies import STUDIES
from experiments.sweep import PlannedRun, Sweep
from launchers import SLURM, make_launcher
from launchers.layout import num_hosts as hosts_needed
from launchers.layout import too_few_hosts
from launchers.local import LocalLauncher
from launchers.options import network_from, settings_from
from launchers.protocol import Capacity
from launchers.slurm.batch import smallest_node
from ps_allreduce.errors import UserError
from ps_allreduce.experiment import Experiment
from ps_allreduce.record_files import iter_record_paths
from ps_allreduce.records import Status
from ps_allreduce.spread import LayoutKind

NO_TIME = "The job's time is up: no further run could finish. The same command goes on."


def run_sweep(name: str, given: dict[str, Any]) -> int:
    """Run the sweep of that name; return the exit status."""
    console = Console(stderr=True)
    if given["launcher"] == SLURM and not os.environ.get("SLURM_JOB_ID"):
        return _submit(name, given, console)
    launcher = make_launcher(given["launcher"], settings_from(given))
    with launcher, SweepProgress(console) as progress:
        if not has_time(launcher, profile_from(given)):
            console.print(NO_TIME, highlight=False, soft_wrap=True)
            return 1
        progress.stage("preparing")
        capacity = launcher.capacity()
        if given["launcher"] == SLURM and given["hosts"] not in (None, capacity.num_hosts):
            console.print(
                f"This job has {capacity.num_hosts} hosts, which are used; --hosts counts where a "
                "job is submitted.",
                highlight=False,
            )
        sweep = _plan(name, given, capacity, launcher.describe, console)
        if given["dry_run"]:
            left = submission.unsettled(sweep, given["results"] / name, source_state())
            click.echo(_render_dry_run(sweep, left, submission.OVERHEAD_S))
            return 0
        result = execute(sweep, launcher, given["results"] / name, source_state(), progress)
    return _conclude(result, console)


def _plan(
    name: str, given: dict[str, Any], capacity: Capacity, describe: Describe, console: Console
) -> Sweep:
    """The sweep's points, as far as they fit on the hosts."""
    profile = profile_from(given)
    models = (given["model"],) if given["model"] else models_of(profile)
    request = Request(
        workloads=tuple(workload_from(given, model) for model in models),
        profile=profile,
        scale=scale_from(given, profile, capacity),
        launcher=given["launcher"],
        device=device_from(given),
        spread=spread_from(given),
        network=network_from(given),
        interface=given["interface"],
        wire=wire_from(given),
        dealing=dealing_from(given),
        num_ps=given["num_ps"],
        layout=choice(LayoutKind, given["layout"], "layout"),
        split_bytes=given["split_bytes"],
        describe=describe,
    )
    points = STUDIES[name](request)
    _refuse_unused(name, request, points)
    fitting = _fitting(points, capacity.num_hosts, console)
    return Sweep(name=name, points=fitting, seed=given["seed"])


def _refuse_unused(name: str, request: Request, points: Sequence[Experiment]) -> None:
    """Settings that not one point has would be lost without a word."""
    if request.dealing and not any(point.traits.deals_steps for point in points):
        raise UserError(
            f"{name} has no strategy that deals steps: leave --staleness and --steps-per-dispatch "
            "out."
        )
    if request.wire.host_aggregation and not any(p.wire.host_aggregation for p in points):
        raise UserError(
            f"no point of {name} adds up on a host, which takes ps_sync and several workers per "
            "host: leave --host-aggregation out, or raise --workers-per-host."
        )


def _fitting(
    points: Sequence[Experiment], num_hosts: int, console: Console
) -> tuple[Experiment, ...]:
    """Those points that fit on the hosts; says how many do not, and why the first does not.

    Raises:
        UserError: none does.
    """
    reasons = {point: too_few_hosts(point, num_hosts) for point in points}
    left_out = [reason for reason in reasons.values() if reason]
    if left_out and len(left_out) == len(points):
        raise UserError(left_out[0])
    if left_out:
        console.print(
            f"{len(left_out)} of {len(points)} points do not fit on the hosts and are left out; "
            f"the first: {left_out[0]}",
            highlight=False,
        )
    fitting = tuple(point for point, reason in reasons.items() if not reason)
    most = max(hosts_needed(point) for point in fitting)
    if most < num_hosts and fitting[0].spread is not None:
        console.print(f"No point uses more than {most} of the {num_hosts} hosts.", highlight=False)
    return fitting


def _render_dry_run(sweep: Sweep, left: Sequence[PlannedRun], overhead_s: float) -> str:
    expected = submission.estimate(left, overhead_s)
    titles = "\n".join(f"  {point.title}" for point in sweep.points)
    kept = len(sweep.runs()) - len(left)
    there = f" ({kept} are there already)" if kept else ""
    return (
        f"{len(sweep.points)} points, {len(sweep.runs())} runs{there}, about "
        f"{expected.usual_s / 60:.0f} min and at most {expected.most_s / 60:.0f} min:\n{titles}"
    )


def _submit(name: str, given: dict[str, Any], console: Console) -> int:
    """Submit a job for the sweep, or find the one that there is; follow it."""
    sweep_dir: Path = given["results"] / name
    known = list(iter_record_paths(sweep_dir))
    with LocalLauncher(given["results"] / "data", allow_login_node=True) as describer:
        sweep = _plan(name, given, _asked_for(given), describer.describe, console)
    left = submission.unsettled(sweep, sweep_dir, source_state())
    expected = submission.estimate(left, submission.STEP_OVERHEAD_S)
    job = submission.batch_job(name, given, expected, sweep_dir)
    if given["dry_run"]:
        click.echo(_render_dry_run(sweep, left, submission.STEP_OVERHEAD_S))
        click.echo(submission.render_plan(job, expected, sweep_dir))
        return 0
    job_id = submission.live_job(sweep_dir, job)
    if job_id is None:
        if not left:
            console.print("All runs of this sweep are there; no job is submitted.")
            return 0
        text = submission.render_plan(job, expected, sweep_dir)
        console.print(text, highlight=False, markup=False, soft_wrap=True)
        job_id = submission.submit_job(job, sweep_dir)
    with SweepProgress(console) as progress:
        progress.begin(len(left), len(sweep.runs()) - len(left))
        ending = _follow(job_id, known, sweep_dir, progress, console)
    return _conclude_job(job_id, ending, sweep_dir, console)


def _follow(
    job_id: str,
    known: Sequence[Path],
    sweep_dir: Path,
    progress: SweepProgress,
    console: Console,
) -> str:
    console.print(
        f"Following job {job_id}. Ctrl-C leaves it alone and the same command follows it again; "
        f"scancel {job_id} ends it.",
        highlight=False,
    )
    return submission.follow(job_id, sweep_dir, known, progress, console.print)


def _conclude_job(job_id: str, ending: str, sweep_dir: Path, console: Console) -> int:
    made = submission.made_by(job_id, sweep_dir)
    console.print(f"{len(made)} runs were made by job {job_id}.", highlight=False)
    if ending:
        console.print(f"{ending}; the same command goes on in a new job.", highlight=False)
    if not made:
        text = f"Its output is in {sweep_dir}/slurm:\n{submission.last_output(sweep_dir)}"
        console.print(text, highlight=False, markup=False, soft_wrap=True)
    return 0 if submission.all_well(made, ending) else 1


def _asked_for(given: dict[str, Any]) -> Capacity:
    """What the hosts will offer that a job asks for."""
    if given["hosts"] is None:
        raise UserError(
            "outside of a Slurm job the launcher slurm needs --hosts, the number of hosts to ask "
            "for; or run the same command inside salloc."
        )
    cores = given["cores_per_worker"] or smallest_node(given["partition"])
    return Capacity(num_hosts=given["hosts"], cores_per_host=cores)


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
