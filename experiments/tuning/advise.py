"""What is said of the setting that would be best on so many hosts, and how to measure it.

Which one that is, and by how much, is decided in `analysis.predict.advice`.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

from analysis.data.prices import Prices, stated_prices
from analysis.predict.advice import ENOUGH, Recommendation, advise, known_tellers
from analysis.predict.calibration import usable
from analysis.predict.calibration_file import SHIPPED, CalibrationFile, read_calibration
from analysis.predict.predict_commands import doubts_about, newest_launches
from analysis.predict.predictions import Prediction
from analysis.stats.decision import Outcome
from analysis.stats.findings import Sooner, learned_cases, reached_sooner
from analysis.stats.statistics import estimate
from analysis.wording import count_text, factor_text, number, outcome_text, ratio, with_interval
from experiments.studies.learning import LAUNCHES
from experiments.sweep.sweep import OVERHEAD_S
from experiments.tuning.outcome import options_of
from ps_allreduce.errors import UserError
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.layout import num_hosts
from ps_allreduce.point.models.trained import OwnModel
from ps_allreduce.point.optimizers import OnRows
from ps_allreduce.record.records import RunRecord

#: Settings behind the best one that are told, and asynchronous ones.
_SHOWN = 3

_HOUR_S = 3600

#: With so many of the hosts, or fewer, it is told that these are enough.
_PAYS = 0.75

_OF_YOUR_OWN = (
    "To ask your own hosts and model:",
    "  make calibrate LAUNCHER=slurm MODEL=mine.py:build; make advise HOSTS=16",
)


def told_advice(
    where: Path,
    hosts: int,
    bits_per_s: float | None,
    model: str | None,
    stated: tuple[float | None, float | None],
) -> list[str]:
    """The lines of the answer.

    Args:
        where: a folder of results, a file that `make calibrate` left, or the name of one that
            comes with the suite.
        stated: prices of a host for an hour, and of one that is named for servers.

    Raises:
        UserError: nothing is there to advise from, or several models and none is stated.
    """
    prices = stated_prices(*stated)
    if where.is_dir():
        newest, unread = newest_launches(where)
        launches = _of_model(usable(newest), model)
        advice = advise(known_tellers(launches), hosts, bits_per_s, prices)
        name = advice.best.experiment.workload.model.name
        learned = list(reached_sooner(learned_cases(where), name, hosts))
        said = _lines(advice, hosts, prices, learned, _measured(launches))
        return [*said, *doubts_about(launches), *unread, *_to_measure(advice)]
    made = _kept(where)
    _check_model(model, [each.largest.workload.model.name for each in made.settings])
    told = _lines(advise(made.settings, hosts, bits_per_s, prices), hosts, prices)
    if where.is_file():
        return [f"From {made.source}.", *told]
    return [f"Not from your cluster, a first answer: {made.source}.", *told, *_OF_YOUR_OWN]


def _kept(where: Path) -> CalibrationFile:
    if where.is_file():
        return read_calibration(where)
    if str(where) not in SHIPPED:
        raise UserError(
            f"{where}: no such folder of results. make calibrate measures one; without a cluster, "
            f"RESULTS may be one of {', '.join(SHIPPED)}."
        )
    return SHIPPED[str(where)]()


def _of_model(launches: Sequence[RunRecord], model: str | None) -> list[RunRecord]:
    """Those of one model; trainings that learn tell of rates only between evaluations."""
    launches = [each for each in launches if each.experiment.learning is None]
    names = [each.experiment.workload.model.name for each in launches]
    wanted = _check_model(model, names)
    return [each for each, name in zip(launches, names, strict=True) if name == wanted]


def _check_model(model: str | None, names: Sequence[str]) -> str:
    """The one that is stated, or the only one."""
    different = [*dict.fromkeys(names)]
    if not different:
        raise UserError("no launch that measures a rate ended well: nothing can be advised.")
    if model is None and len(different) == 1:
        return different[0]
    if model is None or model not in different:
        problem = "several models were" if model is None else f"model {model} was not"
        raise UserError(f"{problem} measured: state with --model one of {', '.join(different)}.")
    return model


def _measured(launches: Sequence[RunRecord]) -> dict[Experiment, str]:
    """The rates of points that were launched, as text."""
    rates: dict[Experiment, list[float]] = {}
    for each in launches:
        if each.metrics is not None:
            rates.setdefault(each.experiment, []).append(each.metrics.examples_per_sec)
    return {own: with_interval(number, *estimate(each).ends) for own, each in rates.items()}


def _lines(
    advice: Recommendation,
    hosts: int,
    prices: Prices | None,
    learned: Sequence[Sooner] = (),
    measured: Mapping[Experiment, str] | None = None,
) -> Iterator[str]:
    best, told = advice.best, partial(_told, prices, measured or {})
    yield f"Best on {count_text(hosts, 'host')}: {told(best)}."
    for each in advice.ranked[1 : 1 + _SHOWN]:
        yield f"  {_behind(best, each)}: {told(each)}{_overlap(best, each)}."
    yield from unlike_trainings(advice.ranked[: 1 + _SHOWN])
    if advice.fastest.expected * ENOUGH > best.expected:
        yield f"Fewer hosts are faster: {told(advice.fastest)}."
    elif advice.enough_hosts <= _PAYS * hosts:
        enough = count_text(advice.enough_hosts, "host")
        yield f"{enough} would have {ENOUGH:.0%} of its rate: more do not pay."
    if prices is not None and advice.cheapest is not None:
        fewest = count_text(num_hosts(advice.cheapest.experiment), "host")
        saved = f"{1.0 - _cost(advice.cheapest, prices) / _cost(best, prices):.0%}"
        if saved != "0%":
            yield f"An example costs least on {fewest}: {saved} less."
    if advice.helps:
        helps = [f"{name} {share:+.0%}" for name, share in advice.helps.items()]
        yield f"Would help: {', '.join(helps)}."
    for other in advice.asynchronous[:_SHOWN]:
        yield f"Asynchronous, so of another kind: {told(other)}."
    yield from map(_advised, learned)
    if advice.asynchronous and not learned:
        yield f"None of these is advised without its time to a loss: {_effort(best)}."
    if best.experiment.network is not None and best.limit == "processors":
        yield "Emulated hosts share one machine's processors, which limit here."
    if best.unknown:
        yield f"Not known or assumed: {'; '.join(best.unknown)}."
    yield f"Weighed: {count_text(advice.weighed, 'cluster')}."


def unlike_trainings(ranked: Sequence[Prediction]) -> Iterator[str]:
    """That settings which stand beside each other train other weights, if some do."""
    own = [each.experiment for each in ranked]
    lazy = [each for each in own if each.workload.optimizer.on_rows is OnRows.LAZY]
    if {each.strategy.is_sparse for each in lazy} == {True, False}:
        yield (
            f"Not all of them train alike: with sparse embeddings "
            f"{lazy[0].workload.optimizer.keras_class} changes only the rows that a step looks up "
            "(docs/embeddings.md)."
        )


def _advised(each: Sooner) -> str:
    """What trainings that learned say of an asynchronous setting."""
    setting, rival = (point.experiment.title for point in (each.asynchronous, each.synchronous))
    ratio = factor_text(each.decision) if each.decision.low else "an unknown multiple"
    if each.decision.outcome is Outcome.FASTER:
        return f"Advised where a loss counts: {setting} reached it {ratio} sooner than {rival}."
    return (
        f"Not advised: the seconds to a loss of {rival} are {ratio} of those of {setting} "
        f"({outcome_text(each.decision)})."
    )


def _effort(best: Prediction) -> str:
    """What measuring times to a loss takes, at most, at the rate of the best setting."""
    model = best.experiment.workload.model
    if not isinstance(model, OwnModel) or model.learning is None:
        return (
            f"make study NAME=learning MODEL=mine.py:build measures it in {LAUNCHES} launches, of "
            "a model whose module states LEARNED (docs/own_model.md)"
        )
    minutes = LAUNCHES * (OVERHEAD_S + model.learning.most_examples / best.expected) / 60
    return (
        f"make study NAME=learning MODEL={model.name} measures it in {LAUNCHES} launches, in "
        f"{minutes:.0f} minutes at most at this rate"
    )


def _to_measure(advice: Recommendation) -> Iterator[str]:
    yield (
        "To measure the best one; what else was stated of input or of hosts has to be stated again:"
    )
    yield f"  {_python()} -m experiments run-one {options_of(advice.best.experiment)}"


def _python() -> str:
    """The environment's, which need not be beside the suite."""
    own, here = Path(sys.executable), Path.cwd()
    return shlex.quote(str(own.relative_to(here) if own.is_relative_to(here) else own))


def _behind(best: Prediction, other: Prediction) -> str:
    behind = f"{1.0 - other.expected / best.expected:.0%}"
    return "As fast" if behind == "0%" else f"{behind} behind"


def _told(prices: Prices | None, measured: Mapping[Experiment, str], made: Prediction) -> str:
    own = made.experiment
    unit = own.workload.unit.counted
    if made.rate is None:
        rate = f"at most {number(made.bound)} {unit}/s (too far from what was measured to say more)"
    else:
        rate = f"{with_interval(number, made.rate, made.low, made.high)} {unit}/s"
    if own in measured:
        rate += f" (measured: {measured[own]})"
    parts = [f"{own.title}: {rate}"]
    if made.efficiency is not None:
        parts.append(f"efficiency {ratio(made.efficiency)}")
    if prices is not None:
        parts.append(f"{number(1000 * _cost(made, prices))} per thousand {unit}")
    return ", ".join([*parts, f"limited by {made.limit}"])


def _cost(made: Prediction, prices: Prices) -> float:
    """Of an example."""
    return prices.per_hour(made.experiment) / _HOUR_S / made.expected


def _overlap(best: Prediction, other: Prediction) -> str:
    if best.low is None or other.high is None:
        return "; bounds are no rates"
    return "" if best.low > other.high else "; their intervals overlap"
