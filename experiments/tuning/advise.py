"""What is said of the setting that would be best with so many workers, and how to measure it.

Which one that is, and by how much, is decided in `analysis.predict.advice`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from analysis.predict.advice import ENOUGH, Recommendation, advise
from analysis.predict.calibration import usable
from analysis.predict.predict_commands import newest_launches
from analysis.predict.predictions import Prediction
from analysis.wording import number, with_interval, workers_text
from experiments.studies.learning import LAUNCHES
from experiments.tuning.outcome import options_of
from ps_allreduce.errors import UserError
from ps_allreduce.record.records import RunRecord

#: Settings behind the best one that are told.
_SHOWN = 3


def told_advice(
    folder: Path, workers: int, bits_per_s: float | None, model: str | None
) -> list[str]:
    """The lines of the answer.

    Raises:
        UserError: the folder holds nothing to advise from, or several models and none is stated.
    """
    known = _of_model(usable(newest_launches(folder), workers), model)
    return list(_lines(advise(known, workers, bits_per_s)))


def _of_model(launches: Sequence[RunRecord], model: str | None) -> list[RunRecord]:
    """Those of one model."""
    names = dict.fromkeys(each.experiment.workload.model.name for each in launches)
    wanted = model or next(iter(names), "")
    if wanted not in names or (model is None and len(names) > 1):
        raise UserError(f"state with --model which one of {', '.join(names)} is trained.")
    return [each for each in launches if each.experiment.workload.model.name == wanted]


def _lines(advice: Recommendation) -> Iterator[str]:
    best = advice.best
    yield f"Best of the synchronous settings that were measured: {_told(best)}."
    for other in advice.ranked[1 : 1 + _SHOWN]:
        behind = 1.0 - other.expected / best.expected
        clear = "" if _is_apart(best, other) else "; their intervals overlap"
        yield f"  {behind:.0%} behind: {_told(other)}{clear}."
    enough, asked = advice.enough_workers, best.experiment.num_workers
    if enough < asked:
        yield f"{workers_text(enough)} would have {ENOUGH:.0%} of that: more hosts do not pay."
    for name, share in advice.helps.items():
        yield f"On top, {name} would bring {share:+.0%}."
    for other in advice.asynchronous[:_SHOWN]:
        yield f"Asynchronous, so of another kind: {_told(other)}."
    if advice.asynchronous:
        yield (
            "None of these is advised without its time to a loss: make study NAME=learning "
            f"MODEL=mine.py:build measures it in {LAUNCHES} launches."
        )
    for text in best.unknown:
        yield f"Not known: {text}."
    yield (
        "To measure the best one; what else was stated of input or of hosts has to be stated again:"
    )
    yield f"  python -m experiments run-one {options_of(best.experiment)}"


def _told(made: Prediction) -> str:
    unit = f"{made.experiment.workload.unit}/s"
    if made.rate is None:
        rate = f"at most {number(made.bound)} {unit} (too far from what was measured to say more)"
    else:
        rate = f"{with_interval(number, made.rate, made.low, made.high)} {unit}"
    return f"{made.experiment.title}: {rate}, limited by {made.limit}"


def _is_apart(best: Prediction, other: Prediction) -> bool:
    return best.low is not None and other.high is not None and best.low > other.high
