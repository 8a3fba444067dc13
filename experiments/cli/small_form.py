"""The small form of a study from the literature, where nothing else is stated.

Decides which parts of a request it fills in, and that it has no search.  What it is made of is
decided by the study.
"""

from __future__ import annotations

from dataclasses import replace

from experiments.cli.requests import SpreadRequest, StudyRequest
from experiments.models.workload_request import StatedInput
from experiments.studies.defaults import default_models
from experiments.studies.study import SmallForm
from experiments.sweep.sweep import QUICK
from launchers.settings import AUTO, LauncherSettings
from launchers.sites.emulated.site import EMULATED
from launchers.sites.kinds import site_kind
from ps_allreduce.errors import UserError
from ps_allreduce.point.workload import Workload


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
        spread=_spread(request.spread, request.launcher, small),
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


def _spread(stated: SpreadRequest, launcher: LauncherSettings, small: SmallForm) -> SpreadRequest:
    """That of the small form, but on this machine as a whole, which has nothing to spread."""
    if not site_kind(_launcher(launcher, small).launcher).several_hosts:
        return stated
    return replace(stated, workers_per_host=stated.workers_per_host or small.workers_per_host)


def workloads_of(request: StudyRequest) -> tuple[Workload, ...]:
    """What is trained with every input: the stated model, else what the study or its form has.

    Else the models of the profile.
    """
    inputs = request.workload.inputs or (None,)
    return tuple(workload for data in inputs for workload in _with_input(request, data))


def _with_input(request: StudyRequest, data: StatedInput | None) -> list[Workload]:
    asked, study = request.workload, request.study
    if asked.model is not None:
        return [asked.workload(asked.model, data)]
    small = study.small if request.sweep.profile.name == QUICK else None
    if own := (study if small is None else small).workloads:
        return [asked.over(each, data) for each in own]
    models = default_models(request.sweep.chosen_profile)
    return [asked.workload(name, data) for name in models]
