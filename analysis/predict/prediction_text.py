"""What is printed of predictions, and of their check."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Table

from analysis.predict.literature import HeldOut
from analysis.predict.prediction_check import IDLE, Figures, PredictionCheck
from analysis.predict.prediction_file import PredictionFile
from analysis.predict.predictions import FURTHEST, Prediction
from analysis.wording import NONE, count_text, number, with_interval
from ps_allreduce.terminal import Terminal

_WIDTH = 150


def show_predictions(made: PredictionFile) -> None:
    """Print a row for each setting and number of workers, and what limits trust in them."""
    points, console = made.predicted.points, Terminal(highlight=False, width=_WIDTH)
    notes = _notes(points)
    names = ("setting", "rate [90 %]", "at most", "efficiency", "limit", "")
    rows = [[*_cells(each), _marks(each, notes)] for each in points]
    console.print(_table(names, rows))
    for mark, text in notes.items():
        console.print(f"{mark}  {text}", markup=False)
    for text in _sentences(made):
        console.print(text, markup=False)


def _cells(each: Prediction) -> list[str]:
    share = NONE if each.efficiency is None else f"{each.efficiency:.2f}"
    rate = with_interval(number, each.rate, each.low, each.high) if each.rate else "bound only"
    return [each.experiment.title, rate, number(each.bound), share, each.limit]


def _notes(points: Sequence[Prediction]) -> dict[str, str]:
    """What launches do not tell, each once, by a letter."""
    texts = dict.fromkeys(text for each in points for text in each.unknown)
    letters = (chr(ord("a") + place) for place in range(len(texts)))
    return {letter: f"not known: {text}" for letter, text in zip(letters, texts, strict=True)}


def _marks(each: Prediction, notes: dict[str, str]) -> str:
    own = {f"not known: {text}" for text in each.unknown}
    return "".join(mark for mark, text in notes.items() if text in own)


def _sentences(made: PredictionFile) -> Iterator[str]:
    runs = count_text(len(made.calibration.runs), "launch").replace("launchs", "launches")
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
            f"of {count_text(len(found.questions), 'question')} (at most "
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
