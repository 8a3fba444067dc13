"""The commands that predict, and that hold predictions against later runs; what they print.

Decides which launches below a folder may be learned from: those of the newest machine, software and
program, but for the ones that are what is asked about.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import click
from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Table

from analysis.data.blocks import analysed
from analysis.data.load import find_sweeps, read_sweep
from analysis.data.rows import moment
from analysis.derive.fastest_step import flows_of
from analysis.predict.calibration import learned_from, usable
from analysis.predict.literature import HeldOut, held_out
from analysis.predict.prediction_check import IDLE, Figures, PredictionCheck, check_predictions
from analysis.predict.prediction_file import (
    PredictionFile,
    prediction_file,
    read_predictions,
    save_predictions,
)
from analysis.predict.predictions import FURTHEST, Prediction, Question, predict
from analysis.wording import (
    NONE,
    count_text,
    limited_text,
    number,
    ratio,
    taken_text,
    with_interval,
)
from ps_allreduce.errors import UserError
from ps_allreduce.point.experiment import MOST_WORKERS
from ps_allreduce.point.network import parse_rate
from ps_allreduce.record.files import write_json
from ps_allreduce.record.records import BUSY_LIMIT, RunRecord
from ps_allreduce.terminal import Terminal, echo

CHECK = "prediction_check.json"

_WIDTH = 150


def results_folder(text: str) -> Path:
    """Where results are.

    Raises:
        UserError: the text is empty, which would be the present folder.
    """
    if not text.strip():
        raise UserError("a folder of results is missing: RESULTS=, or both A= and B=.")
    return Path(text)


FOLDER = click.argument("folder", type=results_folder)


def _numbers(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError as error:
        raise UserError(f"{text!r} is no list of numbers such as 8,16.") from error


@click.command("predict")
@FOLDER
@click.option("--workers", type=_numbers, metavar="<n,n,...>", help="Numbers of workers; needed.")
@click.option(
    "--bandwidth",
    type=parse_rate,
    metavar="<rate>",
    help="Rate of links.  [default: as measured]",
)
@click.option(
    "--num-ps",
    type=click.IntRange(1, MOST_WORKERS),
    metavar="<n>",
    help="Parameter servers.  [default: as measured: so many, or one for each worker]",
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

    It does not learn from launches of what is asked about.
    """
    if workers is None:
        raise UserError('say how many workers: --workers 8, or make predict ARGS="--workers 8,16".')
    question = Question(workers=workers, bits_per_s=bandwidth, num_ps=num_ps)
    every, unread = _all(folder)
    newest = _newest(every)
    few = usable(newest, calibrate_up_to)
    known = [each for each in few if not _is_asked(each, question)]
    predicted = predict(known, question)
    if not predicted.points:
        raise UserError(f"no setting can be as it is asked for. {predicted.left_out[0]}")
    used = learned_from(known)
    made = prediction_file(question, used, predicted)
    path = save_predictions(made, folder, into)
    show_predictions(made)
    if left := _left_out_text(every, newest, few, known, used):
        echo(f"Launches that were not learned from: {left}.")
    for doubt in (*doubts_about(used), *unread):
        echo(doubt)
    echo(f"Predictions: {path}")


@click.command("check-predictions")
@FOLDER
def check_command(folder: Path) -> None:
    """Compare the predictions in FOLDER with launches that were made after them."""
    files = read_predictions(folder)
    every, unread = _all(folder)
    found = check_predictions(files, every)
    path = folder / CHECK
    write_json(path, found)
    show_check(found)
    for doubt in unread:
        echo(doubt)
    echo(f"Figures: {path}")


@click.command("literature")
def literature_command() -> None:
    """Fit the formulas to others' small measurements, and print the errors on their larger ones."""
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


def newest_launches(folder: Path) -> tuple[Sequence[RunRecord], Sequence[str]]:
    """Launches of the machine, software and program with which the last one was made.

    Beside them a sentence for each sweep of which files could not be read.

    Raises:
        UserError: no sweep below the folder measured anything.
    """
    every, unread = _all(folder)
    return _newest(every), unread


def _newest(launches: Sequence[RunRecord]) -> Sequence[RunRecord]:
    last = max(launches, key=lambda each: moment(each.started_at))
    return [each for each in launches if each.block == last.block]


def _left_out_text(*kept: Sequence[RunRecord]) -> str:
    """How many launches each step of the choice leaves out, and why; empty if all are kept."""
    every, newest, few, known, used = map(len, kept)
    ok = len(usable(kept[1]))
    left = {
        "of another machine, software or program": every - newest,
        "that did not end well": newest - ok,
        "with more workers than stated": ok - few,
        "of what is asked about": few - known,
        "that do not tell what they send where": known - used,
    }
    return ", ".join(f"{count} {why}" for why, count in left.items() if count)


def doubts_about(launches: Sequence[RunRecord]) -> Iterator[str]:
    """What speaks against launches that are learned from, by the limits that comparisons have.

    Where nothing is sent, processors may be as busy as they like.
    """
    sending = [each for each in launches if flows_of(each)]
    busy = sum((each.machine_busy or 0.0) >= BUSY_LIMIT for each in sending)
    send = "sends" if len(sending) == 1 else "send"
    runs = f"{count_text(len(sending), 'launch')} that {send} gradients"
    loads = {"other programs": [each.foreign_load for each in sending]}
    yield from filter(None, [limited_text(busy, runs), taken_text(loads, runs)])


def _all(folder: Path) -> tuple[list[RunRecord], list[str]]:
    """Launches of sweeps that measured, and neither chose nor compared weights; what is unread."""
    sweeps = [analysed(read_sweep(path)) for path in find_sweeps(folder)]
    files = [sweep.files for sweep in sweeps if not sweep.is_no_result]
    launches = [record for each in files for record in each.records.values()]
    if not launches:
        raise UserError(f"{folder} holds no sweep that measured rates.")
    ordered = sorted(launches, key=lambda each: (each.started_at, each.run_id))
    return ordered, [each.unread for each in files if each.unread]


def show_predictions(made: PredictionFile) -> None:
    """Print a row for each setting and number of workers, and what limits trust in them."""
    points, console = made.predicted.points, Terminal(highlight=False, width=_WIDTH)
    notes = _notes(points)
    names = ("setting", "rate [90 %]", "bound", "efficiency", "limit", "")
    rows = [[*_cells(each), _marks(each, notes)] for each in points]
    console.print(_table(names, rows))
    for mark, text in notes.items():
        console.print(f"{mark}  {text}", markup=False)
    for text in _sentences(made):
        console.print(text, markup=False)


def _cells(each: Prediction) -> list[str]:
    rate = with_interval(number, each.rate, each.low, each.high) if each.rate else "bound only"
    return [each.experiment.title, rate, number(each.bound), ratio(each.efficiency), each.limit]


def _notes(points: Sequence[Prediction]) -> dict[str, str]:
    """What launches do not tell, each once, by a letter."""
    texts = dict.fromkeys(text for each in points for text in each.unknown)
    letters = (chr(ord("a") + place) for place in range(len(texts)))
    return {letter: f"not known: {text}" for letter, text in zip(letters, texts, strict=True)}


def _marks(each: Prediction, notes: dict[str, str]) -> str:
    own = {f"not known: {text}" for text in each.unknown}
    return "".join(mark for mark, text in notes.items() if text in own)


def _sentences(made: PredictionFile) -> Iterator[str]:
    runs = count_text(len(made.calibration.runs), "launch")
    most = max((each.calibrated for each in made.predicted.points), default=0)
    yield f"Learned from {runs} with up to {most} workers, at commit {made.commit}."
    if any(each.rate is None for each in made.predicted.points):
        yield f"Beyond {FURTHEST} times the workers that were measured only a bound is said."
    yield from (f"Left out: {text}" for text in made.predicted.left_out)
    yield f"Digest {made.digest[:16]}, made {made.made_at}."


def show_check(found: PredictionCheck) -> None:
    """Print a row for each point, and the figures beside those of other models."""
    console = Terminal(highlight=False, width=_WIDTH)
    names = ("setting", "predicted [90 %]", "measured", "error", "inside", "busy", *found.others)
    rows = [
        [
            each.experiment,
            with_interval(number, each.predicted, each.low, each.high),
            number(each.measured),
            f"{each.error:+.1%}",
            "yes" if each.inside else "no",
            (NONE if each.busy is None else f"{each.busy:.2f}") + " apart" * (not each.counts),
            *(_signed(each.others.get(name)) for name in found.others),
        ]
        for each in found.points
    ]
    console.print(_table(names, rows))
    ours = {"this model": Figures(mape=found.mape, p90=found.p90, bias=found.bias)}
    ours |= {f"this model, {scale} x as many": own for scale, own in found.by_scale.items()}
    apart = {f"apart, {what}": own for what, own in found.apart.items()}
    for name, own in {**ours, **found.others, **apart}.items():
        figures = f"mean error {own.mape:.1%}, 90th percentile {own.p90:.1%}, bias {own.bias:+.1%}"
        console.print(f"{name}: {figures}", markup=False)
    counted = sum(each.counts for each in found.points)
    console.print(
        f"{count_text(counted, 'point')}, {found.coverage_90:.0%} inside their 90 % intervals, "
        f"interval score {found.interval_score:.2f}; {found.not_measured} not measured yet. Errors "
        "are those of the time of a step, below 0 where the prediction was too fast.",
        markup=False,
    )
    if busy := sum(not each.is_idle for each in found.points):
        console.print(f"Apart, with processors more than {IDLE:.0%} busy: {busy}.", markup=False)
    if found.advice_gap is not None:
        console.print(
            f"The best setting was {found.advice_gap:.1%} faster than the advised one, in the mean "
            f"of {count_text(len(found.questions), 'question')} (95 % upper bound: "
            f"{found.advice_gap_high:.1%}).",
            markup=False,
        )


def show_literature(data_sets: Sequence[HeldOut]) -> None:
    """Print errors on what was not fitted, of every model."""
    console = Terminal(highlight=False, width=_WIDTH)
    names = ("data set", "fitted", "predicted", "rows", "model", "mean", "90th", "bias", "inside")
    rows: list[list[str]] = []
    for each in data_sets:
        about = [each.name, each.fitted, each.predicted, str(each.rows)]
        rows.append([*about, "this model", *_figures(each.own), f"{each.coverage_90:.0%}"])
        for name, other in each.others.items():
            rows.append([*[""] * len(about), name, *_figures(other), ""])
    console.print(_table(names, rows))
    for each in data_sets:
        sizes = ", ".join(f"{own.mape:.1%} with {n}" for n, own in each.by_workers.items())
        console.print(f"{each.name}: mean errors {sizes}.", markup=False)
        if each.unknown:
            console.print(f"{each.name}: not known is {each.unknown}.", markup=False)


def _figures(own: Figures) -> list[str]:
    return [f"{own.mape:.1%}", f"{own.p90:.1%}", f"{own.bias:+.1%}"]


def _signed(value: float | None) -> str:
    return NONE if value is None else f"{value:+.0%}"


def _table(names: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    table = Table(*names, box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for row in rows:
        table.add_row(*map(escape, row))
    return table
