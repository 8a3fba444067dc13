"""A sweep from the command line: here and now, or in jobs of a batch system.

Decides which of the two, and what is said on the way and at the end.  What a job asks for, and how
jobs are remembered and followed, is decided in `sweep.jobs`.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from experiments import surroundings
from experiments.cli.links import FirstLook, tell_exchange
from experiments.cli.pilot import Pilot
from experiments.cli.plan import as_piloted, check_budget, is_brief, plan_sweep
from experiments.cli.requests import StudyRequest
from experiments.cli.settle import settled
from experiments.studies.defaults import OwnTraining
from experiments.sweep.definition import (
    Choices,
    own_digests,
    read_choices,
    save_definition,
    set_aside_damaged,
)
from experiments.sweep.execute import SessionResult, Stop, execute, has_time, look_ahead
from experiments.sweep.folder import now
from experiments.sweep.history import (
    Counts,
    History,
    Standing,
    kept_records,
    of_software,
    read_history,
)
from experiments.sweep.jobs import SweepJobs, planned_jobs, render_jobs
from experiments.sweep.progress import SweepProgress, plain_console
from experiments.sweep.session import Workplace
from experiments.sweep.sweep import JOB_OVERHEAD_S, OVERHEAD_S, PlannedRun, Sweep, expected_duration
from launchers.run.launcher import Capacity, HostsLauncher
from launchers.scheduler import Scheduler
from launchers.sites.kinds import site_kind
from ps_allreduce.errors import UserError, at_least
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.layout import num_hosts as hosts_needed
from ps_allreduce.record.files import iter_record_paths
from ps_allreduce.record.provenance import collect
from ps_allreduce.record.records import Status
from ps_allreduce.terminal import Terminal, echo

#: Exit status of what was asked to stop.
INTERRUPTED = 130

NO_TIME = (
    "The job's time is up: no further run could finish. In a new job, the same command makes the "
    "runs that are missing."
)

NOTHING_MISSING = "No run of this sweep is to be made; no job is submitted."


def run_study(request: StudyRequest, told: str = "") -> int:
    """Run the sweep of a study, or have it run in jobs; return the exit status.

    Args:
        told: what is said as soon as it is known that the sweep can be run.

    Raises:
        UserError: what was asked for cannot be run.
        LaunchError: the host has a fault that does not pass.
    """
    request, console = settled(request), plain_console()
    _tell_of_change(request, console)
    site = site_kind(request.launcher.launcher)
    if site.scheduler is not None and not site.scheduler.inside_job():
        return max(request.status, _submit(request, site.scheduler, console, told))
    if not request.sweep.dry_run:
        surroundings.tell_of_others(request.launcher, console)
    with surroundings.workplace(request.launcher, request.sweep_dir, console) as place:
        if not has_time(place.launcher, request.sweep.profile):
            console.print(NO_TIME)
            return 1
        return max(request.status, _run_here(request, place, console, told))


def _tell_of_change(request: StudyRequest, console: Console) -> None:
    """Say that the user's own model is another one than when the sweep was last called."""
    training = request.workload.model
    if not isinstance(training, OwnTraining):
        return
    known = own_digests(request.sweep_dir, training.model.name)
    if known and training.model.digest not in known:
        console.print(
            f"{training.model.name} has changed since the last call of this sweep: it is another "
            "model, of which all runs are to be made. Those of before stay what they are."
        )


def known_choices(request: StudyRequest, place: Workplace, console: Console) -> Choices:
    """What was chosen for the sweep before; nothing if that is damaged, which is told.

    Raises:
        UserError: what is damaged cannot be set aside.
    """
    if not request.sweep.dry_run and (damaged := set_aside_damaged(place.sweep_dir, now())):
        console.print(damaged)
    return read_choices(place.sweep_dir, request.identity, place.block)


def _run_here(request: StudyRequest, place: Workplace, console: Console, told: str = "") -> int:
    begun, again = time.monotonic(), request.sweep.retry_failed
    choices = known_choices(request, place, console)
    sweep, runs = _for_these_hosts(request, place.launcher, choices, console)
    if request.sweep.budget_s is not None:
        _, ahead = look_ahead(runs, place, retry_failed=again)
        check_budget(request, sweep, ahead.missing)
    if told:
        console.print(told)
    if not request.sweep.dry_run:
        sweep, runs = _answered(request, place, choices, (sweep, runs), begun)
    if exchange := tell_exchange(request, choices):
        console.print(exchange)
    if request.sweep.dry_run:
        history, standing = look_ahead(runs, place, retry_failed=again)
        echo(render_sweep(sweep, runs, standing.missing, OVERHEAD_S))
        _tell(history, standing, console)
        return 0
    result = execute(sweep, runs, place, choices, retry_failed=again, begun=begun)
    status = _conclude(result, console)
    if status or not _goes_on(request, place, choices, sweep):
        return status
    save_definition(sweep, choices, place.sweep_dir)
    return _run_here(request, place, console)


def _goes_on(request: StudyRequest, place: Workplace, choices: Choices, sweep: Sweep) -> bool:
    """Whether the study has more points now that these are launched."""
    decide = request.study.goes_on
    if decide is None or is_brief(request):
        return False
    made = frozenset(point.experiment_id for point in sweep.points)
    return decide(kept_records(place.sweep_dir, place.block, made), choices)


#: A sweep, and those of its runs that are to be made on these hosts.
Planned = tuple[Sweep, list[PlannedRun]]


def _answered(
    request: StudyRequest, place: Workplace, choices: Choices, planned: Planned, begun: float
) -> Planned:
    """The sweep after what is launched before it: a look at its links, then a pilot.

    Both come when it is known that all points can be run.  Points are made again only where a look
    has answered; what a pilot answers changes windows and launches.
    """
    (sweep, runs), console = planned, plain_console()
    points = _points_of(runs)
    if request.looks_first and any(hosts_needed(point) > 1 for point in points):
        look_ahead(runs, place)
        look = FirstLook(request=request, place=place, choices=choices, console=console)
        if look.take(points):
            sweep, runs = _for_these_hosts(request, place.launcher, choices, Terminal(quiet=True))
    here = set(_points_of(runs))
    pilot = Pilot(request=request, place=place, choices=choices, console=console, begun=begun)
    part = replace(sweep, points=tuple(point for point in sweep.points if point in here))
    if runs and pilot.take(part):
        sweep = as_piloted(sweep, choices)
        runs = _runs_here(request, sweep, place.launcher.capacity().num_hosts)
    return sweep, runs


def _points_of(runs: Sequence[PlannedRun]) -> tuple[Experiment, ...]:
    return tuple(dict.fromkeys(run.experiment for run in runs))


def _standing(
    request: StudyRequest, runs: Sequence[PlannedRun], counts: Counts, console: Console
) -> Standing:
    """How far a sweep has come before this call, and what is wrong with it."""
    history = read_history(request.sweep_dir, counts, retry_failed=request.sweep.retry_failed)
    standing = history.standing(runs)
    _tell(history, standing, console)
    return standing


def _tell(history: History, standing: Standing, console: Console) -> None:
    for sentence in (*map(str, history.refused.values()), *standing.troubles):
        console.print(sentence)


def _for_these_hosts(
    request: StudyRequest, launcher: HostsLauncher, choices: Choices, console: Console
) -> Planned:
    """The sweep, and those of its runs that are to be made on these hosts."""
    capacity, hosts = launcher.capacity(), request.launcher.hosts
    num_hosts = capacity.num_hosts
    if request.sweep.jobs_by_size and hosts is not None:
        capacity = replace(capacity, num_hosts=hosts)
    elif site_kind(request.launcher.launcher).scheduler and hosts not in (None, num_hosts):
        console.print(
            f"This job has {num_hosts} hosts, which are used; --hosts counts where a job is "
            "submitted."
        )
    sweep = plan_sweep(request, capacity, launcher.describe, choices, console)
    return sweep, _runs_here(request, sweep, num_hosts)


def _runs_here(request: StudyRequest, sweep: Sweep, num_hosts: int) -> list[PlannedRun]:
    """All runs, or those of the job with so many hosts.

    Raises:
        UserError: there are none in it.
    """
    if not request.sweep.jobs_by_size or request.launcher.hosts is None:
        return sweep.runs()
    runs = sweep.runs_of_job(num_hosts)
    if not runs:
        raise UserError(
            f"no point of this sweep belongs to the job of {num_hosts} hosts; leave "
            "--jobs-by-size out to use these hosts for the whole sweep."
        )
    return runs


def _conclude(result: SessionResult, console: Console) -> int:
    counts = Counter(record.status for record in result.made)
    ends = ", ".join(f"{counts[status]} {status}" for status in Status if counts[status])
    made, kept = len(result.made), result.kept
    before = f", {kept} {'was' if kept == 1 else 'were'} made before" if kept else ""
    shares = (
        f", measured share {result.measured_share:.2f} (of the time inside windows), useful "
        f"fraction {result.useful_fraction:.2f} (with warm-up)"
    )
    console.print(
        f"{made} run{'s' * (made != 1)} made ({ends or 'none needed'}){before}; "
        f"{result.wall_s:.0f} s{shares if made else ''}"
    )
    if result.stop is Stop.PRECISE:
        console.print(
            "Ended early: the interval of the main ratio is as narrow as the profile asks for."
        )
    for sentence in result.standing.troubles:
        console.print(sentence)
    if result.stop is Stop.NO_TIME:
        console.print(NO_TIME)
        return 1
    if result.stop is Stop.INTERRUPTED:
        console.print("Interrupted. The same command makes the runs that are missing.")
        return INTERRUPTED
    return 0 if result.standing.is_complete else 1


def _submit(request: StudyRequest, scheduler: Scheduler, console: Console, told: str) -> int:
    """Submit jobs for the sweep, or find those that there are; follow them."""
    sweep_dir = request.sweep_dir
    capacity = _asked_capacity(request, scheduler)
    sweep = _planned(request, capacity, console)
    if told:
        console.print(told)
    if exchange := tell_exchange(request, read_choices(sweep_dir, request.identity, None)):
        console.print(exchange)
    counts = of_software(collect(surroundings.source_state()))
    standing = _standing(request, sweep.runs(), counts, console)
    check_budget(request, sweep, standing.missing)
    planned = planned_jobs(sweep, standing.missing, request.launcher, capacity.num_hosts, sweep_dir)
    jobs = SweepJobs(scheduler=scheduler, sweep_dir=sweep_dir)
    job_ids = jobs.live()
    costs = render_jobs(planned, scheduler, sweep_dir) if planned else NOTHING_MISSING
    if request.sweep.dry_run:
        echo(render_sweep(sweep, sweep.runs(), standing.missing, JOB_OVERHEAD_S))
        followed = f"{_jobs_text(job_ids)} would be followed, no other one submitted."
        echo(followed if job_ids else costs)
        return 0
    known = list(iter_record_paths(sweep_dir))
    if not job_ids:
        console.print(costs)
        job_ids = jobs.submit(planned)
    if not job_ids:
        return 0 if standing.is_complete else 1
    with SweepProgress(console) as progress:
        progress.begin(len(standing.missing), len(sweep.runs()) - len(standing.missing))
        ending = _follow(jobs, job_ids, known, progress, console)
    if ending is None:
        return INTERRUPTED
    once = replace(request, sweep=replace(request.sweep, retry_failed=False))
    sweep = _planned(once, capacity, Terminal(quiet=True))  # with what a pilot chose in the job
    standing = _standing(once, sweep.runs(), counts, console)
    return 0 if standing.is_complete and not ending else 1


def _planned(request: StudyRequest, capacity: Capacity, console: Console) -> Sweep:
    """The sweep on the hosts that will be asked for; their block is known when they are there."""
    choices = read_choices(request.sweep_dir, request.identity, None)
    with surroundings.this_machine(request.launcher.results) as launcher:
        return plan_sweep(request, capacity, launcher.describe, choices, console)


def _asked_capacity(request: StudyRequest, scheduler: Scheduler) -> Capacity:
    hosts = request.launcher.hosts
    if hosts is None:
        raise UserError(
            f"outside of a job the launcher {request.launcher.launcher} needs --hosts, the number "
            "of hosts to ask for; or run the same command inside a job."
        )
    at_least(1, hosts=hosts)
    cores = request.sweep.cores_per_worker or scheduler.cores_per_node(request.launcher)
    ps_hosts = request.launcher.ps_hosts or 0
    return Capacity(num_hosts=hosts, cores_per_host=cores, num_ps_hosts=ps_hosts)


def _follow(
    jobs: SweepJobs,
    job_ids: Sequence[str],
    known: Sequence[Path],
    progress: SweepProgress,
    console: Console,
) -> str | None:
    """What is wrong with the ends of the jobs, if anything; None if they go on unwatched."""
    named = _jobs_text(job_ids)
    stays = (
        f"{named} will go on; the same command follows again, "
        f"{jobs.scheduler.cancel_command(job_ids)} ends what is left"
    )
    try:
        console.print(f"Following {named}. After Ctrl-C {stays}.")
        ending = jobs.follow(job_ids, known, progress, console.print)
    except KeyboardInterrupt:
        console.print(f"No longer following: {stays}.")
        return None
    made = jobs.made_by(job_ids)
    console.print(f"{len(made)} run{'s' * (len(made) != 1)} made by {named}.")
    if ending:
        console.print(
            f"{ending}; the same command submits a new job for the runs that are missing."
        )
    if not made:
        console.print(f"Its output is in {jobs.sweep_dir}/slurm:\n{jobs.last_output()}")
    return ending


def _jobs_text(job_ids: Sequence[str]) -> str:
    return f"job {job_ids[0]}" if len(job_ids) == 1 else f"jobs {', '.join(job_ids)}"


def render_sweep(
    sweep: Sweep, runs: Sequence[PlannedRun], missing: Sequence[PlannedRun], overhead_s: float
) -> str:
    """What would be run: points, missing runs, and how long these take.

    Args:
        runs: those runs of the sweep that these hosts are for; `missing` are to be made.
        overhead_s: of every run beyond measuring.
    """
    expected = expected_duration(sweep, missing, overhead_s)
    run_here = {run.experiment for run in runs}
    points = [point for point in sweep.points if point in run_here]
    titles = "\n".join(f"  {point.run_title}" for point in points)
    num_kept = len(runs) - len(missing)
    kept = f" ({num_kept} made before)" if num_kept else ""
    every = sum(run.turn < sweep.profile.repetitions for run in runs)
    more = " and more of the main comparison as time allows" if every < len(runs) else ""
    made = f"{len(points)} point{'s' * (len(points) != 1)}, {every} run{'s' * (every != 1)}"
    return f"{made}{more}{kept}, {expected}:\n{titles}"
