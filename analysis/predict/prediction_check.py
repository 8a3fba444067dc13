"""How far predictions were off, by the runs that were made afterwards.  Pure.

Decides which launches a prediction is held against (the same setting, begun after it was made, and
none that it was learned from), and the figures.  The error is that of the time of a step.  An
interval is scored as by Gneiting and Raftery, J. American Statistical Association 102, 2007: its
width and, for what lies beyond an end, 2 / 0.1 times how far; on the logarithm, so 0.1 is 10 %.

Emulated hosts share the processors of one machine.  Points in which these were busier than `IDLE`
tell about processors, not links: they are listed, and no figure counts them.  Points with a
disturbance that no calibrating launch had are scored apart, by disturbance.

Also decides what it would have cost to follow the predictions.  A question is one workload with so
many workers on the same links, for which several synchronous settings were predicted and launched
at least twice.  The advised one has the highest predicted rate.  The best one is chosen by every
other launch and scored by the rest, so that luck which chose it does not count for it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from statistics import fmean, median

import numpy as np

from analysis.data.rows import moment
from analysis.derive.fastest_step import step_time_s
from analysis.predict.calibration import disturbance_of, usable
from analysis.predict.prediction_file import PredictionFile, run_name
from analysis.predict.predictions import UNSEEN, Prediction
from ps_allreduce.errors import UserError
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.network import MAX_HOSTS
from ps_allreduce.record.records import RunRecord

#: Share that an interval leaves out.
_OUTSIDE = 0.1

#: Up to this share of their time may processors of emulated hosts be busy.
IDLE = 0.85

#: Of questions drawn again, for the upper end of the mean.
_DRAWS = 2000

#: Share of the means that lie above the upper end.
_ABOVE = 0.05

Measured = tuple[Prediction, Sequence[RunRecord]]


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedPoint:
    """A prediction beside what was measured.

    Attributes:
        experiment: in words.
        further: workers over the most that were calibrated.
        apart: the disturbance that no calibrating launch had, in words; empty without one.
        busy: share of the time of this machine's processors; None where hosts have their own.
        measured: examples per second, geometric mean of the launches.
        error: of the predicted time of a step, over the measured one, less 1; below 0 the
            prediction was too fast.
        inside: the interval holds what was measured.
        score: of the interval.
        others: errors of the models without links, by their names.
    """

    experiment: str
    num_workers: int
    further: float
    apart: str
    busy: float | None
    launches: int
    predicted: float
    low: float
    high: float
    measured: float
    error: float
    inside: bool
    score: float
    others: Mapping[str, float] = field(default_factory=dict)

    @property
    def is_idle(self) -> bool:
        """Its processors were idle enough."""
        return self.busy is None or self.busy <= IDLE

    @property
    def counts(self) -> bool:
        """In the figures of all points."""
        return self.is_idle and not self.apart


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """Errors of many points.

    Attributes:
        mape: mean of the absolute errors of steps.
        p90: their 90th percentile.
        bias: mean of the errors; below 0 predictions were too fast.
    """

    mape: float
    p90: float
    bias: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictionCheck(Figures):
    """All points, and figures of the model and of the others.

    Attributes:
        by_scale: figures by how many times the calibrated workers there were.
        apart: figures by disturbance; no other figure counts these points.
        coverage_90: share of the points inside their intervals.
        advice_gap: by how much the best setting was faster than the advised one, in the mean of
            `questions`; None where there are none.
        advice_gap_high: at most, with 95 % confidence.
        interval_score: mean of the scores.
        digests: of the files that were checked.
        not_measured: points that nobody has launched since.
    """

    by_scale: Mapping[str, Figures]
    apart: Mapping[str, Figures]
    coverage_90: float
    interval_score: float
    advice_gap: float | None
    advice_gap_high: float | None
    questions: tuple[CheckedAdvice, ...]
    others: Mapping[str, Figures]
    points: tuple[CheckedPoint, ...]
    digests: tuple[str, ...]
    not_measured: int


def check_predictions(
    files: Sequence[PredictionFile], records: Iterable[RunRecord]
) -> PredictionCheck:
    """Hold predictions against the launches that followed them.

    Raises:
        UserError: no such launch is there.
    """
    found = _followed(files, usable(records))
    measured = [(each, own) for each, own in found if own]
    points = tuple(_checked(each, own) for each, own in measured)
    counted = [each for each in points if each.counts]
    if not counted:
        raise UserError(
            "no launch that counts was begun after its prediction (apart: processors more than "
            f"{IDLE:.0%} busy, disturbances that were not calibrated): make these runs."
        )
    told = zip(measured, points, strict=True)
    questions = check_advice([pair for pair, each in told if each.counts])
    return PredictionCheck(
        **asdict(figures([each.error for each in counted])),
        by_scale=_by(
            lambda each: f"{each.further:g}", sorted(counted, key=lambda each: each.further)
        ),
        apart=_by(
            lambda each: each.apart, [each for each in points if each.apart and each.is_idle]
        ),
        coverage_90=fmean(each.inside for each in counted),
        interval_score=fmean(each.score for each in counted),
        advice_gap=fmean(each.gap for each in questions) if questions else None,
        advice_gap_high=upper_end(questions) if questions else None,
        questions=questions,
        others=_of_others(counted),
        points=points,
        digests=tuple(file.digest for file in files),
        not_measured=len(found) - len(points),
    )


def _followed(
    files: Sequence[PredictionFile], launches: Sequence[RunRecord]
) -> list[tuple[Prediction, list[RunRecord]]]:
    """Every prediction of a rate, and the launches that came after it."""
    return [
        (each, _followers(file, each, launches))
        for file in files
        for each in file.predicted.points
        if each.rate is not None
    ]


def _by(name: Callable[[CheckedPoint], str], points: Sequence[CheckedPoint]) -> dict[str, Figures]:
    errors: dict[str, list[float]] = {}
    for each in points:
        errors.setdefault(name(each), []).append(each.error)
    return {shared: figures(some) for shared, some in errors.items()}


def _of_others(points: Sequence[CheckedPoint]) -> dict[str, Figures]:
    names = dict.fromkeys(name for each in points for name in each.others)
    return {
        name: figures([each.others[name] for each in points if name in each.others])
        for name in names
    }


def figures(errors: Sequence[float]) -> Figures:
    """Of errors of steps."""
    sizes = np.abs(errors)
    return Figures(
        mape=float(sizes.mean()), p90=float(np.quantile(sizes, 0.9)), bias=float(np.mean(errors))
    )


def _followers(
    file: PredictionFile, prediction: Prediction, launches: Sequence[RunRecord]
) -> list[RunRecord]:
    known, wanted = set(file.calibration.runs), _setting(prediction.experiment)
    return [
        each
        for each in launches
        if moment(each.started_at) >= moment(file.made_at)
        and run_name(each) not in known
        and _setting(each.experiment) == wanted
    ]


def _setting(own: Experiment) -> Hashable:
    """What a launch has to share with a prediction."""
    return *_question(own), own.strategy, own.spread, own.resources.device


def _checked(prediction: Prediction, launches: Sequence[RunRecord]) -> CheckedPoint:
    rate, low, high = (x or math.nan for x in (prediction.rate, prediction.low, prediction.high))
    steps = [step for each in launches if (step := step_time_s(each))]
    busy = [each.machine_busy for each in launches if each.machine_busy is not None]
    examples = prediction.experiment.global_batch
    measured = examples / math.exp(fmean(map(math.log, steps)))
    return CheckedPoint(
        experiment=prediction.experiment.title,
        num_workers=prediction.experiment.num_workers,
        further=prediction.experiment.num_workers / prediction.calibrated,
        apart=disturbance_of(prediction.experiment) if UNSEEN in prediction.unknown else "",
        busy=median(busy) if busy else None,
        launches=len(steps),
        predicted=rate,
        low=low,
        high=high,
        measured=measured,
        error=measured / rate - 1.0,
        inside=low <= measured <= high,
        score=_score(low, high, measured),
        others={name: measured / other - 1.0 for name, other in prediction.others.items()},
    )


def _score(low: float, high: float, measured: float) -> float:
    beyond = max(0.0, math.log(low / measured), math.log(measured / high))
    return math.log(high / low) + 2 / _OUTSIDE * beyond


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedAdvice:
    """A question, and what the advised setting costs.

    Attributes:
        workload: in words.
        bits_per_s: of links; None where it is not stated.
        candidates: settings among which was chosen.
        gap: rate of the best one over that of the advised one, less 1.
    """

    workload: str
    num_workers: int
    bits_per_s: float | None
    advised: str
    best: str
    candidates: int
    gap: float


def check_advice(points: Sequence[Measured]) -> tuple[CheckedAdvice, ...]:
    """All questions that the launches answer."""
    groups: dict[Hashable, list[Measured]] = {}
    for prediction, launches in points:
        if prediction.experiment.strategy.synchronous and len(launches) > 1:
            groups.setdefault(_question(prediction.experiment), []).append((prediction, launches))
    return tuple(_checked_advice(own) for own in groups.values() if len(own) > 1)


def upper_end(questions: Sequence[CheckedAdvice]) -> float:
    """What advice costs in the mean at most, with 95 % confidence: of questions drawn again."""
    gaps = np.array([each.gap for each in questions])
    drawn = np.random.default_rng(0).choice(gaps, size=(_DRAWS, len(gaps))).mean(axis=1)
    return float(np.quantile(drawn, 1.0 - _ABOVE))


def _question(own: Experiment) -> tuple[Hashable, ...]:
    """More hosts than are needed change nothing."""
    network = own.network and replace(own.network, num_hosts=MAX_HOSTS)
    return own.workload, own.num_workers, network


def _checked_advice(group: Sequence[Measured]) -> CheckedAdvice:
    advised = max(group, key=lambda each: each[0].expected)
    best = max(group, key=lambda each: _rate(each, 0))
    own = advised[0].experiment
    return CheckedAdvice(
        workload=" ".join([own.workload.model.name, *own.workload.title_parts()]),
        num_workers=own.num_workers,
        bits_per_s=own.network.bits_per_s if own.network else None,
        advised=advised[0].experiment.title,
        best=best[0].experiment.title,
        candidates=len(group),
        gap=_rate(best, 1) / _rate(advised, 1) - 1.0,
    )


def _rate(measured: Measured, half: int) -> float:
    """Mean rate of every other launch."""
    prediction, launches = measured
    steps = [step for each in launches[half::2] if (step := step_time_s(each))]
    return prediction.experiment.global_batch / fmean(steps)
