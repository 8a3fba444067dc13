"""A single run: its experiment, how it is made, and what is told of it.

Decides that a setting which the run has no use for is refused, that every call makes one more
repetition, and which values programs that wrap a single run get, as one flat JSON object.
"""

from __future__ import annotations

import os
from dataclasses import fields, replace
from pathlib import Path

from experiments.cli.requests import RunRequest
from experiments.models.workload_request import refuse_absent_workers
from experiments.studies.scope import Describe, check_servers
from experiments.sweep.folder import check_writable
from experiments.sweep.session import Workplace, open_session, run_once_more
from launchers.sites.kinds import network_of
from ps_allreduce.errors import UserError
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.models.trained import SMALL_CNN, Unit
from ps_allreduce.point.placement import Policy, default_split_bytes, without_tables
from ps_allreduce.point.resources import Resources, workers_together
from ps_allreduce.point.strategies.stated import Embeddings, StrategySettings
from ps_allreduce.point.workload import Workload
from ps_allreduce.record.files import RunFiles
from ps_allreduce.record.records import BUSY_LOAD, RunRecord
from ps_allreduce.record.step_table import Metrics
from ps_allreduce.serialization import to_json

NAME = "run-one"

#: Of what was asked for, the columns that tell one run from another.
ASKED = (
    *("strategy", "model", "unit", "num_workers", "num_ps", "placement", "global_batch"),
    *("compute", "launcher"),
)

BEGAN_BUSY = (
    f"the run began with a load average above {BUSY_LOAD:g} per processor: other programs may have "
    "slowed it down"
)


def single_experiment(request: RunRequest, describe: Describe) -> Experiment:
    """The experiment that was asked for.

    Raises:
        UserError: what was asked for does not fit together.
    """
    launcher, settings = request.launcher, request.settings
    model = request.workload.model
    workload = request.workload.workload(SMALL_CNN if model is None else model)
    experiment = Experiment(
        strategy=request.strategy.of(_with_threshold(settings, workload, describe)),
        num_workers=request.num_workers,
        launcher=launcher.launcher,
        spread=request.spread.spread(launcher.launcher),
        network=network_of(launcher),
        interface=launcher.interface,
        workload=workload,
        resources=Resources(
            cores_per_worker=request.cores_per_worker,
            threads_per_worker=request.threads_per_worker,
            device=request.workload.device,
        ),
        measurement=request.evaluation.put_into(
            request.warmup.put_into(request.profile.measurement)
        ),
    )
    _refuse_unused(experiment, settings)
    check_servers([experiment], describe)
    refuse_absent_workers([experiment])
    return experiment


def _with_threshold(
    settings: StrategySettings, workload: Workload, describe: Describe
) -> StrategySettings:
    """Where variables are cut and nobody says above which size: the default of what is placed."""
    if settings.placement is not Policy.PARTITIONED or settings.split_bytes is not None:
        return settings
    variables = describe(workload)
    if settings.embeddings is Embeddings.SPARSE:
        variables = without_tables(variables)
    threshold = default_split_bytes(variables, settings.num_ps or 1)
    return replace(settings, split_bytes=threshold)


def _refuse_unused(experiment: Experiment, settings: StrategySettings) -> None:
    """Refuse what the strategy understands but has no use for here."""
    if settings.split_bytes is not None and settings.placement is not Policy.PARTITIONED:
        raise UserError(
            "only the placement partitioned uses --split-bytes: leave it out, or state "
            "--placement partitioned."
        )
    together = workers_together(experiment.num_workers, experiment.spread)
    if experiment.strategy.host_aggregation and together < 2:
        raise UserError(
            "--host-aggregation adds up the gradients of workers that share a host, and here none "
            "do: leave it out, or take several workers on a host (--num-workers, "
            "--workers-per-host)."
        )


def make_one_run(experiment: Experiment, request: RunRequest, place: Workplace) -> RunRecord:
    """Run an experiment once more than before.

    Raises:
        UserError: it cannot be run here, or the folder cannot be used.
    """
    weights = request.weights and request.weights.resolve()
    place.launcher.describe(experiment.workload)  # so that it is known what memory a batch needs
    place.launcher.check(experiment)
    place.launcher.prepare(experiment.workload)
    with open_session(place, NAME, request.profile) as session:
        return run_once_more(session, experiment, weights)


def check_places(request: RunRequest) -> None:
    """See that what a run leaves could be written.

    Raises:
        UserError: it could not.
    """
    check_writable(request.launcher.results / NAME)
    if request.weights is not None:
        _check_free_place(request.weights)


def _check_free_place(weights: Path) -> None:
    target = Path(os.path.realpath(weights))  # of a loop, a link in it; Path.resolve would raise
    folder = target.parent
    if not os.access(folder, os.W_OK | os.X_OK):
        missing = "cannot be written" if os.path.isdir(folder) else "is no folder"
        raise UserError(f"--weights {weights}: {folder} {missing}. Choose another file.")
    if os.path.lexists(target) and not (os.path.isfile(target) and os.access(target, os.W_OK)):
        raise UserError(
            f"--weights {weights} is there and no file that can be written. Choose another one."
        )
    if len(os.fsencode(target.name)) > os.pathconf(folder, "PC_NAME_MAX"):
        raise UserError(f"--weights {weights}: this name is too long. Choose another file.")


def one_line(record: RunRecord, sweep_dir: Path) -> dict[str, object]:
    """What identifies the run, how it ended, and its figures; null where there are none."""
    asked = record.experiment.columns()
    files = RunFiles.of(sweep_dir, record.experiment_id, record.repetition, record.attempt)
    unknown = dict.fromkeys(field.name for field in fields(Metrics))
    figures = to_json(record.metrics) if record.metrics is not None else unknown
    workload, rate = record.experiment.workload, figures["examples_per_sec"]
    placement = record.placement
    return {
        "run_id": record.run_id,
        "status": str(record.status),
        "reason": record.reason,
        **{name: asked.get(name) for name in ASKED},
        "placement_max_over_mean": placement.max_over_mean if placement else None,
        "oversubscribed": record.oversubscribed,
        "warnings": [*record.warnings, *([BEGAN_BUSY] if record.began_busy else [])],
        **figures,
        "evaluation_s": record.evaluation and record.evaluation.seconds,
        "evaluation_examples_per_sec": record.evaluation and record.evaluation.examples_per_sec,
        "images_per_sec": rate if workload.unit is Unit.IMAGES else None,
        "tokens_per_sec": workload.tokens_per_sec(rate),
        **{f.name: getattr(record.phases, f.name) for f in fields(record.phases)},
        "fingerprint": record.block,
        "record_path": str(files.record),
    }
