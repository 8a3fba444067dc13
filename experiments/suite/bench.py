"""What the suite itself costs: recording, launching, and time that is not measurement.

Decides which sweeps a launcher makes below the folder `bench`.  They are made like all others, and
judged by `analysis.suite`.  The numbers are for comparing versions of the suite on one machine, and
launchers with each other, not for judging a cluster.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from analysis.suite.bench_costs import OVERHEAD, RECORDING, STANDARD_SWEEP, summarise_bench
from experiments.cli.requests import StudyRequest, SweepRequest
from experiments.cli.sweep_command import run_study
from experiments.models.workload_request import WorkloadRequest
from experiments.studies.scope import SERVER_STRATEGIES, Scope
from experiments.studies.study import Study
from experiments.sweep.folder import check_writable
from experiments.sweep.sweep import PROFILES, STANDARD, Profile
from launchers.settings import LauncherSettings
from launchers.sites.kinds import site_kind
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.measurement import FixedWarmup, Measurement, RecordingComparison
from ps_allreduce.point.models.trained import SMALL_CNN
from ps_allreduce.point.strategies import AllReduce, Single, SynchronousServers
from ps_allreduce.point.strategies.stated import StrategySettings
from ps_allreduce.terminal import echo

BRIEF = Profile(
    name="bench",
    measurement=Measurement(warmup=FixedWarmup(least_steps=1, least_s=0.0), measured_steps=10),
    repetitions=5,
)

ONE_SERVER = StrategySettings(num_ps=1)


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


STUDIES: Mapping[str, Study] = {
    RECORDING: Study(about="The same training with and without recording.", points=_recording),
    OVERHEAD: Study(about="Four tasks, a few steps, launched often.", points=_four_tasks),
    STANDARD_SWEEP: Study(about="A sweep of the profile standard.", points=_of_each_kind),
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
    """What one host shows holds for the others."""
    on_one_host = not site_kind(launcher.launcher).several_hosts
    if on_one_host:
        yield RECORDING, replace(BRIEF, deadline_s=300.0)
    yield OVERHEAD, BRIEF
    if on_one_host:
        yield STANDARD_SWEEP, PROFILES[STANDARD].without_budget(1)


def run_bench(launcher: LauncherSettings) -> int:
    """Make the sweeps that are missing and show what all of them came to; return the exit status.

    Raises:
        UserError: a sweep cannot be made, or `bench.json` cannot be written.
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
