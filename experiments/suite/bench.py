"""What the suite itself costs: recording, launching, and time that is not measurement.

Decides which sweeps a launcher makes below the folder `bench`.  They are made like all others, and
judged by `analysis.suite`.  The numbers are for comparing versions of the suite on one machine, and
launchers with each other, not for judging a cluster.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from analysis.suite.bench import (
    OVERHEAD,
    PLANTED_SWEEP,
    RECORDING,
    STANDARD_SWEEP,
    WARMUP,
    WIRE,
    summarise_bench,
)
from analysis.suite.rule.self_test import PLANTED
from experiments.cli.commands.sweep_command import run_study
from experiments.cli.requests import StudyRequest, SweepRequest
from experiments.models.workload_request import WorkloadRequest
from experiments.studies.scope import SERVER_STRATEGIES, Scope
from experiments.studies.study import Study
from experiments.suite import wire_points
from experiments.sweep.folder import check_writable
from experiments.sweep.sweep import PROFILES, QUICK, STANDARD, Profile
from launchers.settings import LauncherSettings
from launchers.sites.kinds import network_of, site_kind
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.measurement import (
    FixedWarmup,
    Measurement,
    RecordingComparison,
    SteadyWarmup,
)
from ps_allreduce.point.models.trained import SMALL_CNN
from ps_allreduce.point.strategies import AllReduce, Single, SynchronousServers
from ps_allreduce.point.strategies.base import StrategySettings
from ps_allreduce.point.workload import EmulatedCompute
from ps_allreduce.terminal import echo

BRIEF = Profile(
    name="bench",
    measurement=Measurement(warmup=FixedWarmup(least_steps=1, least_s=0.0), measured_steps=10),
    repetitions=5,
)

#: Of a slow-down that is known; `make compare LAUNCHER=local` has time for about as many.
PLANTED_LAUNCHES = 12

ONE_SERVER = StrategySettings(num_ps=1)

#: Long enough that two cores are idle most of the time.
SOME_COMPUTE = EmulatedCompute(forward_s=0.01, backward_s=0.02)


def _of_each_kind(scope: Scope) -> list[Experiment]:
    """Strategies with and without tasks beside the workers: one server, two workers, the chief."""
    (workload,) = scope.workloads
    return [
        scope.point(workload, Single, 1),
        scope.point(workload, AllReduce, 2),
        *(scope.point(workload, strategy, 2, ONE_SERVER) for strategy in SERVER_STRATEGIES),
    ]


def _recording(scope: Scope) -> list[Experiment]:
    comparison = RecordingComparison()
    return [replace(point, measurement=comparison) for point in _of_each_kind(scope)]


def _four_tasks(scope: Scope) -> list[Experiment]:
    (workload,) = scope.workloads
    return [scope.point(workload, SynchronousServers, 2, ONE_SERVER)]


def _both_warmups(scope: Scope) -> list[Experiment]:
    """Real computation, whose steps change most at first, and emulated, whose rate varies least."""
    (workload,) = scope.workloads
    real = scope.point(workload, Single, 1)
    emulated = scope.point(
        replace(workload, emulated=SOME_COMPUTE), SynchronousServers, 2, ONE_SERVER
    )
    return [
        replace(point, measurement=replace(scope.measurement, warmup=warmup))
        for point in (real, emulated)
        for warmup in (SteadyWarmup(), FixedWarmup())
    ]


def _planted(scope: Scope) -> list[Experiment]:
    """An emulated accelerator, the same one slower by a known share, and a rival."""
    (workload,) = scope.workloads
    fast = replace(workload, emulated=SOME_COMPUTE)
    slow = replace(workload, emulated=replace(SOME_COMPUTE, factors=(1.0 + PLANTED,) * 2))
    return [
        scope.point(fast, AllReduce, 2),
        scope.point(slow, AllReduce, 2),
        scope.point(fast, SynchronousServers, 2, ONE_SERVER),
    ]


STUDIES: Mapping[str, Study] = {
    RECORDING: Study(about="The same training with and without recording.", points=_recording),
    OVERHEAD: Study(about="Four tasks, a few steps, launched often.", points=_four_tasks),
    WIRE: wire_points.STUDY,
    STANDARD_SWEEP: Study(about="A sweep of the profile standard.", points=_of_each_kind),
    PLANTED_SWEEP: Study(about="A setting, and the same one slowed down.", points=_planted),
    WARMUP: Study(about="The same points with both kinds of warm-up.", points=_both_warmups),
}


def bench_sweeps(launcher: LauncherSettings) -> Iterator[StudyRequest]:
    """What a launcher is asked for, one sweep after the other."""
    for name, profile in _profiles(launcher):
        yield StudyRequest(
            name=f"bench/{name}",
            study=replace(STUDIES[name], looks_first=False),
            launcher=launcher,
            sweep=SweepRequest(profile=profile, workers=(2,), cores_per_worker=1),
            workload=WorkloadRequest(model=SMALL_CNN),
        )


def _profiles(launcher: LauncherSettings) -> Iterator[tuple[str, Profile]]:
    """What one host shows holds for the others; only emulated links have a rate."""
    on_one_host = not site_kind(launcher.launcher).several_hosts
    if on_one_host:
        yield RECORDING, replace(BRIEF, deadline_s=300.0)
    yield OVERHEAD, BRIEF
    network = network_of(launcher)
    if network is not None:
        yield WIRE, wire_points.wire_profile(network)
    if on_one_host:
        yield STANDARD_SWEEP, PROFILES[STANDARD].without_budget(1)
        yield PLANTED_SWEEP, PROFILES[QUICK].without_budget(PLANTED_LAUNCHES)
        yield WARMUP, PROFILES[QUICK].without_budget(8)


def run_bench(launcher: LauncherSettings) -> int:
    """Make the sweeps that are missing and show what all of them came to; return the exit status.

    Raises:
        UserError: a sweep cannot be made, or `bench.json` cannot be read or written.
    """
    worst, requests = 0, list(bench_sweeps(launcher))
    for request in requests:
        check_writable(request.sweep_dir)
    for request in requests:
        echo(f"{request.name}:", err=True)
        status = run_study(request)
        if status > 1:
            return status
        worst = max(worst, status)
    echo("\n".join(summarise_bench(launcher.results)))
    return worst
