"""The commands that predict, and that hold predictions against later runs.

Decides which launches below a folder may be learned from: those of the newest machine, software and
program, but for the ones that are what is asked about.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from analysis.data.blocks import analysed
from analysis.data.load import find_sweeps, read_sweep
from analysis.data.rows import moment
from analysis.predict.calibration import usable
from analysis.predict.prediction_check import check_predictions
from analysis.predict.prediction_file import prediction_file, read_predictions, save_predictions
from analysis.predict.prediction_text import show_check, show_literature, show_predictions
from analysis.predict.predictions import Question, predict
from ps_allreduce.errors import UserError
from ps_allreduce.point.network import parse_rate
from ps_allreduce.record.files import write_json
from ps_allreduce.record.records import RunRecord
from ps_allreduce.terminal import echo

CHECK = "prediction_check.json"


def _numbers(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError as error:
        raise UserError(f"{text!r} is no list of numbers such as 8,16.") from error


@click.command("predict")
@click.argument("folder", type=Path)
@click.option("--workers", type=_numbers, metavar="<n,n,...>", help="Numbers of workers; needed.")
@click.option(
    "--bandwidth",
    type=parse_rate,
    metavar="<rate>",
    help="Rate of links.  [default: as measured]",
)
@click.option(
    "--num-ps",
    type=click.IntRange(1),
    metavar="<n>",
    help="Parameter servers.  [default: as measured, or as many as workers where there were]",
)
@click.option(
    "--calibrate-up-to",
    type=click.IntRange(1),
    metavar="<n>",
    help="Most workers of the launches to learn from.",
)
@click.option("--into", type=Path, help="File to write.  [default: a dated one below FOLDER]")
def predict_command(
    folder: Path,
    workers: tuple[int, ...] | None,
    bandwidth: float | None,
    num_ps: int | None,
    calibrate_up_to: int | None,
    into: Path | None,
) -> None:
    """Predict rates with more workers, or other links, from the launches below FOLDER.

    Launches of what is asked about are not learned from.
    """
    if workers is None:
        raise UserError('say how many workers: --workers 8, or make predict ARGS="--workers 8,16".')
    question = Question(workers=workers, bits_per_s=bandwidth, num_ps=num_ps)
    known = [
        each
        for each in usable(newest_launches(folder), calibrate_up_to)
        if not _is_asked(each, question)
    ]
    predicted = predict(known, question)
    made = prediction_file(question, known, predicted)
    path = save_predictions(made, folder, into)
    show_predictions(made)
    echo(f"Predictions: {path}")


@click.command("check-predictions")
@click.argument("folder", type=Path)
def check_command(folder: Path) -> None:
    """Compare the predictions in FOLDER with launches that were made after them."""
    files = read_predictions(folder)
    found = check_predictions(files, _all(folder))
    path = folder / CHECK
    write_json(path, found)
    show_check(found)
    echo(f"Figures: {path}")


@click.command("literature")
def literature_command() -> None:
    """Fit the formulas to others' small measurements, and print the errors on their larger ones."""
    # It fits for half a minute, with modules that other commands would only wait for.
    from analysis.predict.literature import held_out

    show_literature(held_out())


def _is_asked(record: RunRecord, question: Question) -> bool:
    """It would tell what is to be predicted."""
    own = record.experiment
    rate = own.network.bits_per_s if own.network else None
    return (
        own.num_workers >= min(question.workers)
        and question.bits_per_s in (None, rate)
        and question.num_ps in (None, own.num_ps)
    )


def newest_launches(folder: Path) -> Sequence[RunRecord]:
    """Launches of the machine, software and program with which the last one was made.

    Raises:
        UserError: no sweep below the folder measured anything.
    """
    launches = _all(folder)
    last = max(launches, key=lambda each: moment(each.started_at))
    return [each for each in launches if each.block == last.block]


def _all(folder: Path) -> list[RunRecord]:
    """Launches of sweeps that measured, not chose."""
    sweeps = [analysed(read_sweep(path)) for path in find_sweeps(folder)]
    launches = [
        record for sweep in sweeps if not sweep.chose for record in sweep.files.records.values()
    ]
    if not launches:
        raise UserError(f"{folder} holds sweeps that chose something, and none that measured.")
    return sorted(launches, key=lambda each: (each.started_at, each.run_id))
