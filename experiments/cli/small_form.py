"""The small form of a study from the literature, where nothing else is stated.

Decides which parts of a request it fills in, and that it has no search.  What it is made of is
decided by the study.
"""

from __future__ import annotations

from dataclasses import replace

from experiments.cli.requests import StudyRequest
from experiments.models.workload_request import WorkloadRequest
from experiments.studies.study import SmallForm
from experiments.sweep.sweep import QUICK
from launchers.settings import AUTO, LauncherSettings
from launchers.sites.emulated.site import EMULATED
from ps_allreduce.errors import UserError


def in_small_form(request: StudyRequest) -> StudyRequest:
    """The request, in the profile quick with what the study's small form has for all that is open.

    Raises:
        UserError: it is another profile, which needs a cluster, and none is stated.
    """
    small = request.study.small
    if small is None:
        return request
    if request.sweep.profile.name != QUICK:
        if request.launcher.launcher == AUTO:
            raise UserError(
                f"{request.name} in the profile {request.sweep.profile.name} trains on a cluster: "
                f"state LAUNCHER=slurm or ssh; the profile {QUICK} fits on this machine."
            )
        return request
    return replace(
        request,
        study=replace(request.study, search=None),
        launcher=_launcher(request.launcher, small),
        workload=_workload(request.workload, small),
        sweep=replace(request.sweep, workers=request.sweep.workers or small.workers),
        settings=small.settings.changed_by(request.settings),
    )


def _launcher(stated: LauncherSettings, small: SmallForm) -> LauncherSettings:
    """Emulated hosts; others are what they are."""
    if stated.launcher not in (AUTO, EMULATED.name):
        return stated
    return replace(
        stated,
        launcher=EMULATED.name,
        hosts=stated.hosts or small.hosts,
        bandwidth=stated.bandwidth or small.bandwidth,
    )


def _workload(stated: WorkloadRequest, small: SmallForm) -> WorkloadRequest:
    if stated.model is not None:
        return stated
    return replace(
        stated,
        model=small.model,
        batch_per_worker=stated.batch_per_worker or small.batch_per_worker,
        emulate=stated.emulate or small.emulate,
    )
