"""The sweep that a command line asks for, as far as it fits on the hosts.

Decides which points are left out and what is said of them; which there are is decided in `studies`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from rich.console import Console

from experiments.cli.given import (
    choice,
    dealing_from,
    device_from,
    profile_from,
    scale_from,
    spread_from,
    wire_from,
    workload_from,
)
from experiments.studies.catalogue import STUDIES
from experiments.studies.request import Describe, Request
from experiments.sweep.estimate import estimate
from experiments.sweep.profiles import models_of
from experiments.sweep.sweep import PlannedRun, Sweep, job_sizes
from launchers import SLURM
from launchers.options import network_from
from launchers.protocol import Capacity
from ps_allreduce.errors import UserError
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.layout import num_hosts as hosts_needed
from ps_allreduce.point.layout import too_few_hosts
from ps_allreduce.point.spread import LayoutKind


def plan_sweep(
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
    sizes = job_sizes(given["hosts"]) if given["jobs_by_size"] else ()
    return Sweep(name=name, points=fitting, seed=given["seed"], job_sizes=sizes)


def check_jobs_by_size(given: dict[str, Any]) -> None:
    """See that jobs of several sizes are asked for where there are jobs.

    Raises:
        UserError: they are asked for elsewhere.
    """
    if not given["jobs_by_size"]:
        return
    if given["launcher"] != SLURM:
        raise UserError(
            f"--jobs-by-size is for the launcher slurm, and this is {given['launcher']}."
        )
    if given["hosts"] is None:
        raise UserError("--jobs-by-size needs --hosts, the number of hosts of the largest job.")
    if any(re.match(r"--dependency\b|-d", option) for option in given["sbatch"]):
        raise UserError(
            "--jobs-by-size decides what each job waits for: leave --dependency out of --sbatch."
        )


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
        UserError: none of those that communicate does.
    """
    reasons = {point: too_few_hosts(point, num_hosts) for point in points}
    left_out = [reason for reason in reasons.values() if reason]
    communicates = {point.traits.communicates for point, reason in reasons.items() if not reason}
    if left_out and communicates <= {False}:
        raise UserError(left_out[0])  # bases alone compare nothing
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


def render_sweep(
    sweep: Sweep, wanted: Sequence[PlannedRun], left: Sequence[PlannedRun], overhead_s: float
) -> str:
    """What would be run: points, runs that are left, and how long they take.

    Args:
        wanted: runs of the sweep that these hosts are for; `left` of them are to be made.
        overhead_s: of every run beyond measuring.
    """
    expected = estimate(left, overhead_s)
    mine = {run.experiment for run in wanted}
    points = [point for point in sweep.points if point in mine]
    titles = "\n".join(f"  {point.title}" for point in points)
    kept = len(wanted) - len(left)
    there = f" ({kept} are there already)" if kept else ""
    return (
        f"{len(points)} points, {len(wanted)} runs{there}, about "
        f"{expected.usual_s / 60:.0f} min and at most {expected.most_s / 60:.0f} min:\n{titles}"
    )
