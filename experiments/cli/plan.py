"""The sweep that a request asks for, as far as it fits on the hosts.

Decides which points do not fit and what is said of them, and refuses options that no point uses.
Which points there are is decided in `studies`.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from rich.console import Console

from analysis.planning.budget import FEWEST_STEPS, MOST_LAUNCHES
from experiments.cli.links import settle_exchange
from experiments.cli.requests import StudyRequest
from experiments.cli.settle import workloads_of
from experiments.models.workload_request import refuse_absent_workers
from experiments.studies.defaults import default_cores, default_workers
from experiments.studies.scope import Describe, Scale, Scope, check_servers
from experiments.studies.study import Study
from experiments.sweep.definition import LAUNCHES, LEFT, WINDOW, Choices
from experiments.sweep.sweep import (
    OVERHEAD_S,
    QUICK,
    PlannedRun,
    Profile,
    Sweep,
    expected_duration,
    job_sizes,
)
from launchers.run.launcher import Capacity, absence
from launchers.settings import option_of
from launchers.sites.kinds import network_of
from ps_allreduce.bounds import nominal_network_s
from ps_allreduce.errors import UserError
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.layout import num_hosts as hosts_needed
from ps_allreduce.point.layout import num_ps_hosts, too_few_hosts
from ps_allreduce.point.measurement import Measurement
from ps_allreduce.point.resources import LayoutKind, Spread
from ps_allreduce.point.strategies import AnyStrategy
from ps_allreduce.point.strategies.base import StrategySide
from ps_allreduce.point.strategies.stated import StrategySettings
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
    _check_workers(request, points, console)
    able = [p for p in points if not too_few_hosts(p, capacity.num_hosts, capacity.num_ps_hosts)]
    if settle_exchange(request, able, capacity, describe, choices):
        points = _points(request.study, scopes)
    _tell_of_refusals(request.study, scopes[0], console)
    _refuse_unused(request.name, request.settings, points)
    check_servers(points, describe)
    _tell_impossible(points, describe, console)
    fitting = _fitting(points, capacity, console)
    refuse_absent_workers(fitting)
    sweep = Sweep(
        name=request.name,
        points=fitting,
        profile=request.sweep.chosen_profile,
        seed=request.sweep.seed,
        left=choices.answer(LEFT, dict[str, int]) or {},
        job_sizes=job_sizes(capacity.num_hosts) if request.sweep.jobs_by_size else (),
    )
    sweep = as_piloted(sweep, choices)
    _check_time(sweep.points, sweep.profile, describe, console)
    return sweep


def as_piloted(sweep: Sweep, choices: Choices) -> Sweep:
    """The sweep in the windows and with the launches that a pilot or the clock decided.

    Without an answer, windows are the profile's, and launches the most; points with a measurement
    of their own keep it.
    """
    window_s, own = choices.answer(WINDOW, float), sweep.profile.measurement
    points = sweep.points
    if window_s is not None:
        points = tuple(_in_window(point, window_s, own) for point in points)
    has_time = sweep.profile.budget_s is not None
    launches = choices.answer(LAUNCHES, int) or MOST_LAUNCHES
    return replace(sweep, points=points, main_launches=launches if has_time else None)


def _in_window(point: Experiment, window_s: float, own: Measurement) -> Experiment:
    """The point with a window of that length, if it is measured as the profile says."""
    measured = point.measurement
    if not isinstance(measured, Measurement) or replace(measured, evaluation=own.evaluation) != own:
        return point
    window = replace(measured, measured_steps=FEWEST_STEPS, measured_s=window_s)
    return replace(point, measurement=window)


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
        brief=is_brief(request),
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


def is_brief(request: StudyRequest) -> bool:
    """Whether a study takes the fewest points."""
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
            profile, spread, capacity, request.settings, brief=is_brief(request)
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
            f"{sweep.profile.repetitions} times, take {likely_s:.0f} s if each launch takes "
            f"{likely_s / len(fewest):.0f} s. State as much, fewer points (--workers, --num-ps), "
            "or --repetitions 1, which allows no verdict."
        )


def _tell_of_refusals(study: Study, scope: Scope, console: Console) -> None:
    """Say which strategies the study leaves out, why the first is, and what is not installed."""
    refusals = {
        strategy.kind: refusal
        for workload in scope.workloads
        for strategy in study.optional
        if (refusal := strategy.refusal(workload))
    }
    if refusals:
        console.print(f"Left out: {', '.join(refusals)}; {next(iter(refusals.values()))}")
    for strategy in study.optional:
        if strategy.kind not in refusals and (reason := absence(strategy)):
            side = SIDES[strategy.side]
            console.print(f"Left out: {strategy.kind}, one more setting of {side}; {reason}")


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
    """Refuse options that no point of the sweep uses, or that the sweep chooses otherwise."""
    strategies = {point.strategy for point in points}
    used = {name for strategy in strategies for name in strategy.understands()}
    if not any(point.strategy.host_aggregation for point in points):
        used -= {"host_aggregation"}
    for setting in settings.stated:
        if setting not in used:
            needs = NEEDS.get(setting, ": leave it out.")
            raise UserError(f"no point of {name} uses {option_of(setting)}{needs}")
        if not any(_has(strategy, settings.only([setting])) for strategy in strategies):
            raise UserError(f"no point of {name} has {option_of(setting)} as stated: leave it out.")


def _has(strategy: AnyStrategy, stated: StrategySettings) -> bool:
    """The strategy understands what is stated, and it is so."""
    with suppress(UserError):  # another value would not fit to the rest of the strategy
        return {*stated.stated} <= strategy.understands() and stated.put_into(strategy) == strategy
    return False


def _check_workers(request: StudyRequest, points: Sequence[Experiment], console: Console) -> None:
    """Say which stated numbers of workers a sweep does not take.

    Raises:
        UserError: it takes none of them.
    """
    if not points:
        raise UserError(f"{request.name} has no point with that many workers: leave --workers out.")
    # A small form states workers, too, of which points of another model may have fewer.
    small = request.study.small.workers if request.study.small else ()
    stated = {*(request.sweep.workers or ())}
    absent = sorted(stated.difference(small, (point.num_workers for point in points)))
    if absent:
        console.print(f"No point of {request.name} has {' or '.join(map(str, absent))} workers.")


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
    if network and network.bits_per_s is not None and not point.strategy.is_sparse:
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
