"""Launch a setting against itself, for the rate of false alarms of real comparisons.

Axes: none; an all-reduce and a synchronous server, each launched as often as two sides need.

Method: one sweep for each session, with the measurement of the profile `quick`.  Which launches are
pairs, and what is said of them, is decided in `analysis.suite.rule.self_comparisons`.

Cost: 2 points, each with twice the launches of a side for every comparison.

It should show that a setting is told apart from itself in at most 5 % of comparisons.
"""

from __future__ import annotations

from datetime import UTC, datetime

from analysis.suite.rule.self_comparisons import (
    FILE,
    FOLDER,
    add_to,
    compare_with_itself,
    render_self_comparisons,
)
from experiments.cli.commands.sweep_command import run_study
from experiments.cli.requests import StudyRequest, SweepRequest
from experiments.models.workload_request import WorkloadRequest
from experiments.studies.scope import Scope
from experiments.studies.study import Study
from experiments.sweep.sweep import PROFILES, QUICK
from launchers.settings import LauncherSettings
from ps_allreduce.errors import at_least
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.models.trained import SMALL_CNN
from ps_allreduce.point.strategies import AllReduce, SynchronousServers
from ps_allreduce.point.strategies.base import StrategySettings
from ps_allreduce.terminal import echo


def _two_sides(scope: Scope) -> list[Experiment]:
    (workload,) = scope.workloads
    return [
        scope.point(workload, AllReduce, 2),
        scope.point(workload, SynchronousServers, 2, StrategySettings(num_ps=1)),
    ]


def run_self_comparisons(launcher: LauncherSettings, comparisons: int, launches: int) -> int:
    """Make a session's comparisons of each setting, and add them to those of earlier sessions.

    Args:
        launches: on either side of a comparison.

    Returns:
        The exit status.

    Raises:
        UserError: the sweep cannot be made, or the file cannot be read or written.
    """
    at_least(1, comparisons=comparisons)
    at_least(3, launches=launches)
    session = f"{FOLDER}/{datetime.now(UTC):%Y%m%dT%H%M%S}"
    request = StudyRequest(
        name=session,
        study=Study(about=__doc__, points=_two_sides),
        launcher=launcher,
        sweep=SweepRequest(
            profile=PROFILES[QUICK].without_budget(2 * launches * comparisons),
            workers=(2,),
            cores_per_worker=1,
        ),
        workload=WorkloadRequest(model=SMALL_CNN),
    )
    status = run_study(request)
    if status > 1:
        return status
    found = compare_with_itself(request.sweep_dir, launches)
    echo(render_self_comparisons(add_to(launcher.results / FILE, found), {}))
    return status
