"""Rates of settings with more workers, or other links, than were measured, with intervals.  Pure.

Decides what a larger cluster looks like (hosts of the same kind, variables placed by the same
policy), how wide an interval is, and beyond which size only a bound is said.  An interval comes
from fits on launches drawn again, and from the model's own error: by how much a fit without the
most workers misses these.  That error grows with the logarithm of the size.  It stands on the side
on which the model missed; on the other side there is the noise of launches alone.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from statistics import fmean, median

import numpy as np

from analysis.predict.baselines import baselines
from analysis.predict.calibration import (
    Family,
    families,
    follows,
    same_batch,
    setting_of,
    undisturbed,
    untold,
    with_servers,
)
from analysis.predict.fitting import NOISE, SIDE, Learned, Seen, fit, learn
from analysis.predict.loads import Cluster
from analysis.predict.models import PERFECT, DealtLoad, Fit, Load, step_s
from analysis.predict.planned_loads import planned_load, with_hosts
from analysis.predict.sent import SentBytes
from ps_allreduce.errors import UserError
from ps_allreduce.point.experiment import MOST_WORKERS, Experiment
from ps_allreduce.record.records import RunRecord

#: Beyond so many times the workers that were measured, only a bound is said.
FURTHEST = 8

#: The model's error where there is nothing to tell it, because one number of workers was measured.
#: At twice the scale it makes 13 %; on stored sweeps 90 % of the errors were below 9 % there where
#: cores were idle, and below 21 % where they were shared (docs/evidence.md).
UNTESTED = 0.04

#: What launches may leave open besides the terms of a fit.
NOT_SATURATED = "what happens where links limit: no launch came near it"
NOT_TESTED = "the model's own error: one number of workers was measured"

UNSEEN = "what a disturbance of links or passes does: no launch had it, so it is scored apart"

#: Why a setting is left out.
UNTOLD = "launches do not tell what it sends where, so nothing is predicted"

#: So many of those that are left out for the same reason are named.
_NAMED = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What is asked of every setting that was measured.

    Attributes:
        workers: numbers of workers.
        bits_per_s: of links; None for the rate that was measured.
        num_ps: servers; None for as many as were measured, or as workers where they were as many.
    """

    workers: tuple[int, ...]
    bits_per_s: float | None = None
    num_ps: int | None = None

    def __post_init__(self) -> None:
        if not self.workers or min(self.workers) < 1 or max(self.workers) > MOST_WORKERS:
            told, most = ", ".join(map(str, self.workers)) or "none", MOST_WORKERS
            raise UserError(f"workers to predict for are numbers from 1 to {most}, got {told}.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ahead:
    """The figures of a prediction.

    Attributes:
        rate: examples per second; None where only the bound is said.
        low, high: 90 % interval of the rate.
        bound: examples per second at most, by links and computation.
        efficiency: of the rate, over that of as many workers without communication.
        limit: what takes most of a step: `computation`, `links` or `processors`.
    """

    rate: float | None
    low: float | None
    high: float | None
    bound: float
    efficiency: float | None
    limit: str

    @property
    def expected(self) -> float:
        """The rate, or where none is said the bound: what settings are ranked by."""
        return self.bound if self.rate is None else self.rate


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction(Ahead):
    """What a setting would do.

    Attributes:
        calibrated: the most workers that were measured.
        unknown: what launches do not tell; the interval is wider for it.
        others: the rates that models without links predict, by their names.
    """

    experiment: Experiment
    calibrated: int
    unknown: tuple[str, ...] = ()
    others: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Predicted:
    """All settings, in the order of their launches.

    Attributes:
        left_out: why some cannot be as they are asked for, a sentence each.
    """

    points: tuple[Prediction, ...]
    left_out: tuple[str, ...] = ()


def predict(records: Sequence[RunRecord], question: Question) -> Predicted:
    """What every setting of the records would do.

    Raises:
        UserError: no setting that sends anything was measured, or nobody worked alone.
    """
    made: list[Prediction] = []
    refused: dict[str, list[str]] = {}
    known = families(records)
    for family in known:
        teller = Teller.of(family)
        for own, count in itertools.product(family.measured, question.workers):
            try:
                made.append(_beside_others(family, teller, asked(own, question, count)))
            except UserError as error:
                refused.setdefault(str(error), []).append(f"{own.strategy} with {count} workers")
    for strategy in untold(records, known):
        refused.setdefault(UNTOLD, []).append(str(strategy))
    return Predicted(
        points=tuple(made),
        left_out=tuple(f"{_few(whom)}: {why}" for why, whom in refused.items()),
    )


def _few(names: Sequence[str]) -> str:
    """The first of them, and how many more there are."""
    different = [*dict.fromkeys(names)]
    more = len(different) - _NAMED
    return ", ".join(different[:_NAMED]) + (f" and {more} more" if more > 0 else "")


def foretell(records: Sequence[RunRecord], targets: Sequence[Experiment]) -> Predicted:
    """What single points would do, in their order, from launches of the same settings.

    Where its number of servers was not launched, launches with a server for every worker tell;
    where nothing was launched under its disturbance, launches without one.

    Raises:
        UserError: no setting that sends anything was measured, or nobody worked alone.
    """
    known = {setting_of(each.largest): each for each in families(records)}
    tellers: dict[Hashable, Teller] = {}
    made: list[Prediction] = []
    left_out: list[str] = []
    for target in targets:
        setting = setting_of(target)
        if setting not in known:
            each_served = with_servers(target.strategy, target.num_workers)
            setting = setting_of(replace(target, strategy=each_served))
        if is_unseen := setting not in known:
            setting = setting_of(undisturbed(target))
        if setting not in known:
            left_out.append(f"{target.title}: its setting was not measured")
            continue
        if setting not in tellers:
            tellers[setting] = Teller.of(known[setting])
        told = _beside_others(known[setting], tellers[setting], target)
        made.append(replace(told, unknown=(*told.unknown, *(UNSEEN,) * is_unseen)))
    return Predicted(points=tuple(made), left_out=tuple(left_out))


@dataclass(frozen=True, slots=True, kw_only=True)
class Teller:
    """A setting with what was learned of it: all that its predictions need.

    Attributes:
        largest: the point that was measured with the most workers.
        clusters: of each batch of lone workers one.
        missed: by how much a fit without the most workers misses these, on the logarithm; None
            where one number of workers was measured.
        calibrated: the most workers that were measured.
        unknown: what launches do not tell.
    """

    largest: Experiment
    sent: SentBytes
    clusters: tuple[Cluster, ...]
    cpu_s_per_byte: float
    learned: Learned
    missed: float | None
    calibrated: int
    unknown: tuple[str, ...] = ()

    @classmethod
    def of(cls, family: Family) -> Teller:
        """Learn from the launches of a setting."""
        learned, missed = learn(family.seen), _missed(family.seen)
        return cls(
            largest=family.largest,
            sent=family.sent,
            clusters=family.clusters,
            cpu_s_per_byte=family.cpu_s_per_byte,
            learned=learned,
            missed=missed,
            calibrated=family.most_workers,
            unknown=(
                *learned.unknown,
                *(NOT_SATURATED,) * (not family.is_saturated),
                *(NOT_TESTED,) * (missed is None),
            ),
        )

    def rate(self, target: Experiment) -> float:
        """Examples per second, whatever the distance from what was measured.

        Raises:
            UserError: it cannot be so.
        """
        return target.global_batch / step_s(self.load(target), self.learned.best)

    def told(self, target: Experiment) -> Prediction:
        """What it would do with other workers, servers or links.

        Raises:
            UserError: it cannot be so.
        """
        bare = planned_load(target, self.sent, same_batch(self.clusters, target), 0.0)
        made = self.ahead(self.load(target), bare, target.global_batch)
        return Prediction(
            experiment=target, calibrated=self.calibrated, unknown=self.unknown, **asdict(made)
        )

    def ahead(self, load: Load, bare: Load, examples: int) -> Ahead:
        """The figures of a prediction.

        Args:
            bare: the load without the processors' work for messages.
            examples: of a step of all workers.
        """
        rate, further = (
            examples / step_s(load, self.learned.best),
            load.num_workers / self.calibrated,
        )
        is_near = further <= FURTHEST
        slower, faster = _sides(load, self.learned, self.missed, further) if is_near else (0.0, 0.0)
        return Ahead(
            rate=rate if is_near else None,
            low=rate * math.exp(-slower) if is_near else None,
            high=rate * math.exp(faster) if is_near else None,
            bound=examples / step_s(replace(bare, message=0.0), PERFECT),
            efficiency=rate * _alone_s(load) / examples if is_near else None,
            limit=_limit(load, self.learned.best),
        )

    def load(self, target: Experiment) -> Load:
        """What a step asks for.

        Raises:
            UserError: it cannot be so.
        """
        cluster = same_batch(self.clusters, target)
        return planned_load(target, self.sent, cluster, self.cpu_s_per_byte)


def _beside_others(family: Family, teller: Teller, target: Experiment) -> Prediction:
    """A prediction, and what models without links tell."""
    others = _others(family, target, teller.load(target))
    return replace(teller.told(target), others=others)


def asked(own: Experiment, question: Question, workers: int) -> Experiment:
    """A point that was measured, as it is asked for.

    Raises:
        UserError: it cannot be so.
    """
    num_ps = question.num_ps or (workers if follows(own) else own.num_ps)
    changed = replace(own, strategy=with_servers(own.strategy, num_ps), num_workers=workers)
    network = own.network
    if question.bits_per_s is not None:
        if network is None or network.bits_per_s is None:
            raise UserError(
                "no launch states the rate of its links, so --bandwidth cannot change it: leave it "
                "out, or predict from emulated hosts."
            )
        network = replace(network, bits_per_s=question.bits_per_s)
    return with_hosts(replace(changed, network=network))


def _sides(
    load: Load, learned: Learned, missed: float | None, further: float
) -> tuple[float, float]:
    """How far the interval reaches to slower and to faster rates, on the logarithm."""
    times = np.log([step_s(load, each) for each in learned.drawn] or [1.0])
    centre = math.log(step_s(load, learned.best)) if learned.drawn else 0.0
    quick, slow = np.quantile(times, (0.05, 0.95)) - centre
    growth = 1.0 + max(0.0, math.log2(further))
    noise = SIDE * NOISE * growth
    own = SIDE * max(NOISE, UNTESTED if missed is None else abs(missed)) * growth
    was_fast, was_slow = missed is None or missed < 0.0, missed is None or missed >= 0.0
    slower = math.hypot(max(0.0, float(slow)), own if was_fast else noise)
    faster = math.hypot(max(0.0, float(-quick)), own if was_slow else noise)
    return slower, faster


def _missed(seen: Sequence[Seen]) -> float | None:
    """By how much a fit without the most workers misses their steps, on the logarithm.

    Below 0 it was too fast.  None where there is one number of workers.
    """
    most = max(each.load.num_workers for each in seen)
    fewer = [each for each in seen if each.load.num_workers < most]
    if not any(each.load.num_workers > 1 for each in fewer):
        return None
    made = fit(fewer)
    return fmean(
        math.log(step_s(each.load, made) / median(each.steps_s))
        for each in seen
        if each.load.num_workers == most
    )


def _alone_s(load: Load) -> float:
    if isinstance(load, DealtLoad):
        return float((load.forward_s + load.backward_s).mean())
    return load.forward_s + load.backward_s


def _limit(load: Load, made: Fit) -> str:
    if isinstance(load, DealtLoad):
        links = float(load.links_s.sum(axis=0).max(initial=0.0))
        processors = float(load.processors_s.sum(axis=0).max(initial=0.0))
        parts = {"computation": _alone_s(load)}
    else:
        links, processors = load.network_s, load.messages_s
        computed_s = _alone_s(load) * load.crowd
        # Where workers want more processors than there are, these are what computation waits for.
        processors = max(processors, computed_s if load.crowd > 1.0 else 0.0)
        parts = {"computation": 0.0 if load.crowd > 1.0 else computed_s}
    parts |= {"links": made.stretch * links, "processors": processors}
    return max(parts, key=parts.__getitem__)


def _others(family: Family, target: Experiment, load: Load) -> dict[str, float]:
    """They see the launches with the rate of links that is asked for, or all if there are none."""
    same = [each for each in family.seen if each.experiment.workload == target.workload]
    alike = [each for each in same if _bits(each.experiment) == _bits(target)]
    pairs = [(e.load.num_workers, step) for e in alike or same or family.seen for step in e.steps_s]
    if min(pairs)[0] > 1:  # a lone worker was launched as well
        pairs.append((1, _alone_s(load)))
    curves = baselines(*zip(*pairs, strict=True))
    count = np.array([float(target.num_workers)])
    return {name: target.global_batch / float(curve(count)[0]) for name, curve in curves.items()}


def _bits(experiment: Experiment) -> float | None:
    return experiment.network.bits_per_s if experiment.network else None
