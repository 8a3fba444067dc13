"""A study that predicts its points before it launches them: calibrate, predict, launch, check.

Decides in which order, and that predictions are written once: as long as machine, software and
program are the same, a call that goes on holds the launches against the file of the first one.
Which points calibrate and which are predicted is decided by the study.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pandas as pd

from analysis.figures.marks import side_name
from analysis.figures.race import plot_foretold
from analysis.figures.style import save_figure
from analysis.predict.calibration import usable
from analysis.predict.predict_commands import CHECK, show_check, show_predictions
from analysis.predict.prediction_check import PredictionCheck, check_predictions
from analysis.predict.prediction_file import (
    PredictionFile,
    prediction_file,
    read_predictions,
    save_predictions,
)
from analysis.predict.predictions import Question, foretell
from experiments import surroundings
from experiments.cli.plan import plan_sweep
from experiments.cli.requests import StudyRequest
from experiments.cli.sweep_command import INTERRUPTED, run_study
from experiments.sweep.definition import begun, read_choices
from experiments.sweep.history import kept_records
from ps_allreduce.errors import UserError
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.strategies import AnyStrategy
from ps_allreduce.record.files import write_json
from ps_allreduce.record.records import RunRecord
from ps_allreduce.terminal import Terminal, echo

#: Begins the names of sweeps that only calibrate.
CALIBRATION = "calibration"


def run_foreseen(request: StudyRequest) -> int:
    """Make all of it that is missing; return the exit status.

    Raises:
        UserError: what was asked for cannot be run.
        LaunchError: the host has a fault that does not pass.
    """
    assert request.study.calibration is not None
    first = replace(
        request,
        name=f"{CALIBRATION}/{request.name}",
        study=replace(request.study, points=request.study.calibration, calibration=None),
    )
    status = run_study(first, f"First what calibrates, in {first.sweep_dir}:")
    if status == INTERRUPTED:
        return status
    if request.sweep.dry_run:
        return max(status, run_study(request))
    made = _predicted(request, first)
    status = max(status, run_study(request))
    return status if status == INTERRUPTED else max(status, _checked(request, made))


def _predicted(request: StudyRequest, first: StudyRequest) -> PredictionFile:
    """The file of this machine, software and program; made now if there is none."""
    known, block = _launches(first)
    for made in reversed(_files(request)):
        if made.calibration.fingerprint == block:
            return made
    targets = _targets(request)
    question = Question(workers=tuple(sorted({each.num_workers for each in targets})))
    made = prediction_file(question, known, foretell(known, targets))
    path = save_predictions(made, request.sweep_dir)
    show_predictions(made)
    echo(f"Predictions, before the first of these runs: {path}")
    return made


def _files(request: StudyRequest) -> list[PredictionFile]:
    try:
        return read_predictions(request.sweep_dir)
    except UserError:
        return []


def _launches(request: StudyRequest) -> tuple[Sequence[RunRecord], str | None]:
    """The launches of a sweep that was called last, and the fingerprint that they share."""
    points, block = begun(request.sweep_dir)
    return usable(kept_records(request.sweep_dir, block, points)), block


def _targets(request: StudyRequest) -> tuple[Experiment, ...]:
    """The points that are to be predicted."""
    choices = read_choices(request.sweep_dir, request.identity, None)
    with surroundings.workplace(request.launcher, request.sweep_dir) as place:
        launcher = place.launcher
        quiet = Terminal(quiet=True)
        return plan_sweep(request, launcher.capacity(), launcher.describe, choices, quiet).points


def _checked(request: StudyRequest, made: PredictionFile) -> int:
    """Hold the launches against the file; leave figures, table and picture beside them."""
    launches, _ = _launches(request)
    found = check_predictions([made], launches)
    path = request.sweep_dir / CHECK
    write_json(path, found)
    show_check(found)
    title = f"{request.name}: predicted before, measured after"
    drawn = save_figure(plot_foretold(_table(found, made), title), request.sweep_dir, request.name)
    echo(f"Figures: {path}, drawn: {drawn['png']}")
    return 0


def _table(found: PredictionCheck, made: PredictionFile) -> pd.DataFrame:
    """A row for every point that was measured."""
    strategies = {each.experiment.title: each.experiment.strategy for each in made.predicted.points}
    return pd.DataFrame(
        {
            "further": each.further,
            "setting": _setting_text(strategies[each.experiment]),
            "side": side_name(type(strategies[each.experiment])),
            "predicted": each.predicted,
            "low": each.low,
            "high": each.high,
            "measured": each.measured,
            "counts": each.counts,
        }
        for each in found.points
    )


def _setting_text(strategy: AnyStrategy) -> str:
    servers = strategy.servers
    return f"{strategy.kind}, {servers.placement}" if servers else strategy.kind
