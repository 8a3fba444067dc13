"""A tuning before a sweep: part of the sweep's time, equal for both sides, finds their settings.

Decides whether there is one, and how long.  The sweep measures the winners beside the defaults, on
launches of its own, which took no part in the choice.
"""

from __future__ import annotations

import sys
from dataclasses import replace

from analysis.figures.names import slug
from experiments.cli.requests import StudyRequest, SweepRequest
from experiments.studies.defaults import default_models
from experiments.tuning import candidates
from experiments.tuning.command import PROFILE, find_winners
from launchers.sites.kinds import site_kind

#: Of the time of the sweep.
SHARE = 0.2


def tuned_first(request: StudyRequest) -> StudyRequest:
    """The request with the winners of each of its models, and with what is left of its time.

    The same request where nothing is to be run here, or the sweep has no time to share.  Ends the
    program where the tuning does not come to its end.
    """
    budget_s = request.sweep.chosen_profile.budget_s
    if budget_s is None or not _is_wanted(request):
        return request
    name = request.workload.model
    models = default_models(request.sweep.profile) if name is None else (name,)
    winners = []
    for model in models:
        own = replace(request, workload=replace(request.workload, model=model))
        tuning = _tuning(replace(own, default_model=name is None))
        sides, status = find_winners(tuning, SHARE * budget_s / 60 / len(models))
        if status:
            sys.exit(status)
        winners += [side.winner for side in sides if side.winner is not None]
    left = replace(request.sweep, budget_s=(1 - SHARE) * budget_s)
    return replace(request, sweep=left, tuned=tuple(winners))


def _is_wanted(request: StudyRequest) -> bool:
    """The sweep is made here and now, on hosts of one kind, and no setting of it is stated.

    Nor is it made with several spreads, of which a tuning has one.
    """
    sweep = request.sweep
    stated = request.settings.stated or sweep.allreduce_threads or sweep.ps_threads
    scheduler = site_kind(request.launcher.launcher).scheduler
    here = scheduler is None or scheduler.inside_job()
    several = request.spread.is_axis or request.launcher.ps_hosts
    return here and not (stated or sweep.dry_run or several)


def _tuning(request: StudyRequest) -> StudyRequest:
    """With the hosts, workers and cores of the sweep: those of its profile where none is stated."""
    stated = request.sweep.workers
    model = request.workload.model
    return StudyRequest(
        name=f"tune/{slug(model if isinstance(model, str) else '')}",
        study=candidates.STUDY,
        launcher=request.launcher,
        sweep=SweepRequest(
            profile=replace(PROFILE, name=request.sweep.profile.name),
            workers=stated and stated[-1:],
            cores_per_worker=request.sweep.cores_per_worker,
        ),
        workload=request.workload,
        spread=request.spread,
        default_model=request.default_model,
    )
