"""The sweep that a request asks for, as far as it fits on the hosts.

Decides which points do not fit and what is said of them, and refuses options that no point uses.
Which points there are is decided in `studies`.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace

from rich.console import Console

from analysis.planning.budget import MOST_LAUNCHES
from experiments.cli.exchange import settle_exchange
from experiments.cli.requests import StudyRequest
from experiments.cli.small_form import workloads_of
from experiments.models.workload_request import refuse_absent_workers
from experiments.studies.defaults import default_cores, default_workers
from experiments.studies.scope import Describe, Scale, Scope, check_servers
from experiments.studies.study import Study
from experiments.sweep.definition import CONTENDERS, LAUNCHES, Choices
from experiments.sweep.sweep import (
    OVERHEAD_S,
    QUICK,
    PlannedRun,
    Profile,
    Sweep,
    expected_duration,
    job_sizes,
)
from launchers.protocol import Capacity
from launchers.run.launcher import absence
from launchers.settings import option_of
from launchers.sites.kinds import SITES, network_of, site_kind
from ps_allreduce.bounds import nominal_network_s
from ps_allreduce.errors import UserError
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.layout import num_hosts as hosts_needed
from ps_allreduce.point.layout import num_ps_hosts, too_few_hosts
from ps_allreduce.point.measurement import Measurement
from ps_allreduce.point.resources import LayoutKind, Spread
from ps_allreduce.point.strategies.base import StrategySettings, StrategySide
from ps_allreduce.point.workload import Workload
from ps_allreduce.record.choices import batch_question

#: What an option needs that its strategies alone do not bring.
NEEDS = {
    "host_aggregation": "; it adds up the gradients of workers that share a host: raise "
    "--workers-per-host, or leave it out."
}

#: What a sweep compares, as it is said of points that are gone.
SIDES = {StrategySide.SERVERS: "parameter servers", StrategySide.ALL_REDUCE: "all-reduce"}


def plan_sweep(
    request: StudyRequest,
    capacity: Capacity,
    describe: Describe,
    choices: Choices,
    console: Console,
) -> Sweep:
    """The sweep's points, as far as they fit on the hosts.

    Raises:
        UserError: what was asked for does not fit together, or nowhere.
    """
    scopes = _scopes(_with_ps_hosts(request, capacity), capacity, describe, choices)
    points = _points(request.study, scopes)
    able = [p for p in points if not too_few_hosts(p, capacity.num_hosts, capacity.num_ps_hosts)]
    if settle_exchange(request, able, capacity, describe, choices):
        points = _points(request.study, scopes)
    _tell_of_refusals(request.study, scopes[0], console)
    _refuse_unused(request.name, request.settings, points)
    check_servers(points, describe)
    _tell_impossible(points, describe, console)
    fitting = _fitting(points, capacity, console)
    refuse_absent_workers(fitting)
    _check_time(fitting, request.sweep.chosen_profile, describe, console)
    return Sweep(
        name=request.name,
        points=fitting,
        profile=request.sweep.chosen_profile,
        seed=request.sweep.seed,
        main_launches=main_launches_of(request, choices),
        main_ids=choices.answer(CONTENDERS, tuple[str, ...]),
        job_sizes=job_sizes(capacity.num_hosts) if request.sweep.jobs_by_size else (),
    )


def main_launches_of(request: StudyRequest, choices: Choices) -> int | None:
    """What a pilot or the clock decided, else the most; None where repetitions are stated."""
    if request.sweep.chosen_profile.budget_s is None:
        return None
    return choices.answer(LAUNCHES, int) or MOST_LAUNCHES


def _with_ps_hosts(request: StudyRequest, capacity: Capacity) -> StudyRequest:
    """Where hosts are named for servers, that is the layout unless another one is stated."""
    if not capacity.num_ps_hosts or request.settings.layout is not None:
        return request
    return replace(request, settings=replace(request.settings, layout=LayoutKind.PS_HOSTS))


def _points(study: Study, scopes: Sequence[Scope]) -> list[Experiment]:
    """Those of all scopes, each once: bases of one side do not change with the other's threads.

    Optional strategies whose package is not installed have none.
    """
    made = dict.fromkeys(point for scope in scopes for point in study.points(scope))
    absent = {each.kind for each in study.optional if absence(each)}
    return [point for point in made if point.strategy.kind not in absent]


def _scopes(
    request: StudyRequest, capacity: Capacity, describe: Describe, choices: Choices
) -> list[Scope]:
    """Where experiments of studies come from: one for each spread with each number of threads."""
    profile = request.sweep.chosen_profile
    spreads = request.spread.spreads(request.launcher.launcher)
    # The densest spread decides for all, so that the same workers have the same cores everywhere.
    scale = scale_of(request, spreads[-1], capacity, choices)
    first = Scope(
        workloads=tuple(_in_chosen_batch(each, choices) for each in workloads_of(request)),
        measurement=profile.measurement,
        scale=scale,
        launcher=request.launcher.launcher,
        device=request.workload.device,
        network=network_of(request.launcher),
        interface=request.launcher.interface,
        settings=request.settings,
        describe=describe,
        choices=choices,
        brief=_is_brief(request),
        num_ps_hosts=capacity.num_ps_hosts,
        host_cores=capacity.shared_cores or capacity.cores_per_host,
        exchange=request.exchange,
        tuned=request.tuned,
    )
    return [
        replace(first, spread=spread, scale=replace(scale, threads=threads))
        for spread, threads in itertools.product(spreads, request.sweep.threads)
    ]


def _in_chosen_batch(workload: Workload, choices: Choices) -> Workload:
    """With the batch that a first look chose for its model, if it did."""
    batch = choices.answer(batch_question(workload.model.name), int)
    return workload if batch is None else replace(workload, batch_per_worker=batch)


def _is_brief(request: StudyRequest) -> bool:
    return request.study.has_brief and request.sweep.profile.name == QUICK


def scale_of(
    request: StudyRequest, spread: Spread | None, capacity: Capacity, choices: Choices
) -> Scale:
    """How far the axes reach: as stated, else as the hosts allow, decided once per sweep."""
    profile = request.sweep.profile
    workers = request.sweep.workers or choices.decide(
        "numbers of workers",
        tuple[int, ...],
        lambda: default_workers(
            profile, spread, capacity, request.settings, brief=_is_brief(request)
        ),
    )
    cores = request.sweep.cores_per_worker
    if cores is None:
        cores = choices.decide(
            "cores per worker", int, lambda: default_cores(workers, spread, capacity)
        )
    return Scale(workers=workers, cores_per_worker=cores)


def check_budget(request: StudyRequest, sweep: Sweep, missing: Sequence[PlannedRun]) -> None:
    """See that a stated time holds what is made in any case; a pilot tells it by itself.

    Args:
        missing: runs of the sweep that are to be made.

    Raises:
        UserError: it does not.
    """
    budget_s = request.sweep.budget_s
    if budget_s is None or sweep.profile.pilot:
        return
    fewest = [run for run in missing if run.turn < sweep.fewest_turns]
    likely_s = expected_duration(sweep, fewest, OVERHEAD_S).likely_s
    if likely_s > budget_s:
        points = len({run.experiment for run in fewest})
        raise UserError(
            f"--budget-s {budget_s:g} is too short: {points} points, each launched "
            f"{sweep.profile.repetitions} times, take about {likely_s:.0f} s. State as much, fewer "
            "points (--workers, --num-ps), or --repetitions 1, which allows no verdict."
        )


def check_jobs_by_size(request: StudyRequest) -> None:
    """See that jobs of several sizes are asked for where there are jobs.

    Raises:
        UserError: they are asked for elsewhere.
    """
    if not request.sweep.jobs_by_size:
        return
    launcher = request.launcher
    if site_kind(launcher.launcher).scheduler is None:
        with_jobs = ", ".join(name for name, kind in SITES.items() if kind.scheduler is not None)
        raise UserError(
            f"--jobs-by-size is for the launcher {with_jobs}, and this is {launcher.launcher}."
        )
    if launcher.ps_hosts is not None:
        raise UserError(
            "--jobs-by-size counts hosts of one kind, so it has no place beside --ps-hosts: leave "
            "one of them out."
        )
    if launcher.hosts is None:
        raise UserError("--jobs-by-size needs --hosts, the number of hosts of the largest job.")


def _tell_of_refusals(study: Study, scope: Scope, console: Console) -> None:
    """Say which strategies the study leaves out, and why the first of them is."""
    refusals = {
        strategy.kind: refusal
        for workload in scope.workloads
        for strategy in study.optional
        if (refusal := strategy.refusal(workload) or absence(strategy))
    }
    if refusals:
        console.print(f"Left out: {', '.join(refusals)}; {next(iter(refusals.values()))}")


def _tell_impossible(points: Sequence[Experiment], describe: Describe, console: Console) -> None:
    """Say where placements of whole variables are left out, because these are too few."""
    served = dict.fromkeys((p.workload, p.num_ps) for p in points if p.num_ps > 1)
    for workload, num_ps in served:
        count = sum(spec.trainable for spec in describe(workload))
        if count < num_ps:
            console.print(
                f"With {num_ps} servers {workload.model.name} has partitioned variables only: it "
                f"has {count} of them, too few to leave them whole."
            )


def _refuse_unused(name: str, settings: StrategySettings, points: Sequence[Experiment]) -> None:
    """Refuse options that no point of the sweep uses."""
    used: set[str] = set()
    for strategy in {point.strategy for point in points}:
        used |= strategy.understands()
    if not any(point.strategy.host_aggregation for point in points):
        used -= {"host_aggregation"}
    for setting in settings.stated:
        if setting not in used:
            needs = NEEDS.get(setting, ": leave it out.")
            raise UserError(f"no point of {name} uses {option_of(setting)}{needs}")


def _fitting(
    points: Sequence[Experiment], capacity: Capacity, console: Console
) -> tuple[Experiment, ...]:
    """Those points that fit on the hosts; says how many do not, and why the first does not.

    Raises:
        UserError: none of those that communicate does.
    """
    num_hosts = capacity.num_hosts
    reasons = {point: too_few_hosts(point, num_hosts, capacity.num_ps_hosts) for point in points}
    left_out = [reason for reason in reasons.values() if reason]
    fitting = tuple(point for point, reason in reasons.items() if not reason)
    if left_out and not any(point.strategy.communicates() for point in fitting):
        raise UserError(left_out[0])  # bases alone compare nothing
    if left_out:
        console.print(
            f"{len(left_out)} of {len(points)} points do not fit on the hosts and are left out; "
            f"the first: {left_out[0]}"
        )
        _tell_side_left_out(points, fitting, console)
    needed = (hosts_needed(point) - num_ps_hosts(point) for point in fitting)
    most = max(needed, default=num_hosts)
    if most < num_hosts and fitting[0].spread is not None:
        console.print(f"No point uses more than {most} of the {num_hosts} hosts.")
    return fitting


def _tell_side_left_out(
    points: Sequence[Experiment], fitting: Sequence[Experiment], console: Console
) -> None:
    """Say that nothing is left of a side that the study has."""
    for side, name in SIDES.items():
        if any(side in p.strategy.side for p in points) and not any(
            side in p.strategy.side for p in fitting
        ):
            console.print(f"No point with {name} is left, so it is compared with nothing.")


def _check_time(
    points: Sequence[Experiment], profile: Profile, describe: Describe, console: Console
) -> None:
    """Say which points take longer than the profile's limit, as far as that is known beforehand.

    Raises:
        UserError: all of those do in which workers exchange gradients.
    """
    least = {point: _least_s(point, describe) for point in points}
    too_long = [point for point in points if least[point] > profile.limit_s]
    exchanging = [p for p in points if p.num_workers > 1 and p.strategy.communicates()]
    if exchanging and set(exchanging) <= set(too_long):
        quickest = min(exchanging, key=least.__getitem__)
        raise UserError(
            "every point in which workers exchange gradients would time out: warm-up and measured "
            f"steps of {quickest.title} take at least {least[quickest]:.0f} s, and the profile "
            f"{profile.name} gives a run {profile.limit_s:.0f} s. State faster links, a smaller "
            "model or less computation."
        )
    if too_long:
        longest = max(too_long, key=least.__getitem__)
        console.print(
            f"{len(too_long)} of {len(points)} points will time out: warm-up and measured steps of "
            f"{longest.title} take at least {least[longest]:.0f} s, and the profile {profile.name} "
            f"gives a run {profile.limit_s:.0f} s."
        )


def _least_s(point: Experiment, describe: Describe) -> float:
    """How long a run measures at least, with the computation and the links that were stated."""
    measurement, load, network = point.measurement, point.workload, point.network
    if not isinstance(measurement, Measurement):
        return 0.0
    step_s = _computed_s(point)
    if network is not None and network.bits_per_s is not None:
        trained = sum(spec.num_bytes for spec in describe(load) if spec.trainable)
        step_s = max(step_s, nominal_network_s(point, trained, network.bits_per_s))
    return measurement.least_s(step_s)


def _computed_s(point: Experiment) -> float:
    """Seconds that a step computes at least; 0 where that is not stated."""
    load = point.of_each
    if load.emulated is None:
        return 0.0
    factors = load.emulated.factors_of(point.num_workers)
    # The slowest worker has to make all of its steps, unless the others may make them.
    factor = min(factors) if point.strategy.steps_may_differ else max(factors)
    return (load.emulated.forward_s + load.emulated.backward_s) * load.accumulation * factor


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
    titles = "\n".join(f"  {point.title}" for point in points)
    num_kept = len(runs) - len(missing)
    kept = f" ({num_kept} are there already)" if num_kept else ""
    every = sum(run.turn < sweep.profile.repetitions for run in runs)
    more = " and more of the main comparison as time allows" if every < len(runs) else ""
    return f"{len(points)} points, {every} runs{more}{kept}, {expected}:\n{titles}"
