"""What a request leaves open, answered before there are hosts, one question after the other.

Decides the order of the questions, and the answers to the first of them: what the small form of a
study from the literature fills in, which launcher a study gets where nobody states one, what is
refused before anything is written, and where images are made for a study that reads files.

Tasks that share a machine over loopback tell nothing about a network: a study which wants hosts
gets emulated ones, unless this machine forbids namespaces or something else speaks against it, and
twice as many where there are cores for them; what was decided is said in one sentence.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from experiments import surroundings
from experiments.cli.requests import SpreadRequest, StudyRequest
from experiments.data_sets.convert import convert
from experiments.data_sets.layouts.class_folders import ClassFolders
from experiments.data_sets.sample_images import write_samples
from experiments.models.settle_model import settle_model
from experiments.models.workload_request import StatedInput
from experiments.studies.defaults import default_models
from experiments.studies.study import SmallForm
from experiments.sweep.folder import check_writable
from experiments.sweep.progress import counting_bar, plain_console
from experiments.sweep.sweep import QUICK
from launchers.settings import AUTO, LauncherSettings
from launchers.sites.emulated.emulated_site import EMULATED
from launchers.sites.kinds import SITES, site_kind
from launchers.sites.local import LOCAL
from ps_allreduce.errors import UserError
from ps_allreduce.point.inputs.data import RecordFiles, Synthetic
from ps_allreduce.point.inputs.image_files import ImageFiles
from ps_allreduce.point.resources import Device
from ps_allreduce.point.workload import Workload

#: With so many cores for each emulated host there are enough for twice as many hosts.
CORES_FOR_TWO = 4

#: Of images that are made, below the results folder.
SAMPLES = "samples"

#: Answers one question: the request with the answer in it, or as it is where nothing is open.
Stage = Callable[[StudyRequest], StudyRequest]


def settled(request: StudyRequest) -> StudyRequest:
    """The request with all answers that need no hosts.  Those of before stay as they are.

    Raises:
        UserError: what was asked for makes no sense together, or cannot be written or trained.
        HostFault: this machine cannot try the user's own model.
    """
    for stage in STAGES:
        request = stage(request)
    return request


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
        launcher=_in_small_form(request.launcher, small),
        spread=_spread(request.spread, request.launcher, small),
        sweep=replace(request.sweep, workers=request.sweep.workers or small.workers),
        settings=small.settings.changed_by(request.settings),
    )


def _in_small_form(stated: LauncherSettings, small: SmallForm) -> LauncherSettings:
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
    if not site_kind(_in_small_form(launcher, small).launcher).several_hosts:
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


def with_launcher(request: StudyRequest) -> StudyRequest:
    """The request with the launcher that `auto` stands for here; says which, if not the plain one.

    Raises:
        UserError: something was stated that this launcher does not understand.
    """
    asked, hosts = request.launcher, request.study.hosts
    if asked.launcher != AUTO:
        return request
    found = replace(asked, launcher=LOCAL.name)
    on_processors = request.workload.device is Device.CPU
    if hosts is not None and on_processors and not surroundings.inside_job():
        found, sentence = _on_emulated_hosts(found, hosts)
        plain_console().print(sentence)
    site_kind(found.launcher).refuse_others(found)
    return replace(request, launcher=found)


def _on_emulated_hosts(settings: LauncherSettings, wanted: int) -> tuple[LauncherSettings, str]:
    cores = surroundings.num_cores()
    hosts = settings.hosts or wanted * (2 if cores >= CORES_FOR_TWO * wanted else 1)
    if refusal := surroundings.why_no_emulated_hosts(hosts):
        return settings, (
            "All tasks share this machine over loopback, which tells nothing about a network: "
            f"{refusal}"
        )
    return replace(settings, launcher=EMULATED.name, hosts=hosts), (
        f"On {hosts} emulated hosts, which share the {cores} cores of this machine, so that a "
        "network is compared; LAUNCHER=local (--launcher local) trains over loopback instead."
    )


def allowed(request: StudyRequest) -> StudyRequest:
    """The same request, unless its jobs or its folder can be known to be none.

    Raises:
        UserError: so it is.
    """
    check_jobs_by_size(request)
    check_writable(request.sweep_dir)
    scheduler = site_kind(request.launcher.launcher).scheduler
    if scheduler is not None:
        scheduler.check_options(request.launcher, jobs_by_size=request.sweep.jobs_by_size)
    return request


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


def with_samples(request: StudyRequest) -> StudyRequest:
    """The request with synthetic images, TFRecord files and loose images as its inputs.

    As it is where a model or inputs are stated, or where the study's form makes none.

    Raises:
        UserError: the results folder cannot be written.
    """
    small = request.study.small
    asked, is_quick = request.workload, request.sweep.profile.name == QUICK
    if small is None or small.samples is None or not is_quick or asked.inputs or asked.model:
        return request
    console = plain_console()
    loose = request.launcher.results / SAMPLES / small.samples.name
    with counting_bar(console, "images made") as report:
        write_samples(small.samples, loose, report)
    records = loose.with_name(f"{loose.name}-tfrecord")
    made = convert(ClassFolders(), loose, records, partial(counting_bar, console))
    inputs = (
        Synthetic(),
        RecordFiles.found_in(records / made.manifests[0].split),
        ImageFiles.found_in(loose),
    )
    pixels = asked.image_size or small.samples.pixels
    return replace(request, workload=replace(asked, inputs=inputs, image_size=pixels))


def with_model(request: StudyRequest) -> StudyRequest:
    """The request with the user's own model tried, if it is for one; else those of the study.

    Raises:
        UserError: there is no such model, or it cannot be trained.
        HostFault: this machine cannot try it.
    """
    asked, results, console = request.workload, request.launcher.results, plain_console()
    if asked.model is not None or not request.study.models:
        return replace(request, workload=settle_model(asked, results, console))
    tried = [settle_model(replace(asked, model=m), results, console) for m in request.study.models]
    workloads = tuple(each.workload(each.model) for each in tried if each.model is not None)
    return replace(request, study=replace(request.study, workloads=workloads))


#: In this order: a mistake is told before anything is made, and a model is tried last.
STAGES: tuple[Stage, ...] = (in_small_form, with_launcher, allowed, with_samples, with_model)
