"""How the figures of a setting are found, and how well they are known.  Pure.

Decides that they are those with the least absolute errors of the logarithms, which single launches
that are far off do not pull, and near to what is usual where launches tell little.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from analysis.predict.models import Fit, Floats, Load, step_s
from ps_allreduce.point.experiment import Experiment

#: Error of a launch that is not the model's fault, on the logarithm.
NOISE = 0.03

#: Of a normal distribution, in standard deviations: 5 % lie beyond.
SIDE = 1.645

#: What is learned, in the order of a vector, and in which words it is told.
TERMS = (
    "what links carry in TensorFlow",
    "what a step costs besides",
    "how much communication hides",
    "what a round of messages costs",
)

#: How far each may be from what is usual, as a standard deviation on the logarithm.
_TOLERANCES = np.array([1.0, 1.5, 1.0, 1.5])

#: A term whose fits differ by more than this share of its tolerance was not learned.
_UNKNOWN_FROM = 0.6

#: Fits on launches that were drawn again, for an interval.
DRAWS = 24

#: So many sets of figures does a fit try.
_TRIES = 300

#: What is usual, where launches tell nothing.
USUAL = Fit(stretch=1.1, overhead_s=0.002, hiding=6.0, round_s=0.0005)


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """The launches of a point.

    Attributes:
        steps_s: seconds of a step of all workers, of each launch.
    """

    experiment: Experiment
    load: Load
    steps_s: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Learned:
    """The figures of a setting, and how well they are known.

    Attributes:
        best: of all launches.
        drawn: of launches that were drawn again.
        unknown: the terms that launches do not tell; they are near to what is usual, and differ
            in `drawn` as far as they may.
    """

    best: Fit
    drawn: tuple[Fit, ...]
    unknown: tuple[str, ...]


def learn(seen: Sequence[Seen]) -> Learned:
    """Fit all launches, and launches drawn again with what is usual drawn as well (bootstrap).

    A term that launches do not tell follows what was drawn as usual, so its tolerance widens the
    predictions (randomized maximum likelihood, Oliver et al., Inverse Problems 13, 1997).
    """
    usual, random = _to_vector(_usual(seen)), np.random.default_rng(0)
    best = _fitted(seen, usual, usual)
    vectors = np.array(
        [
            _fitted(_drawn(seen, random), best, _moved(usual, random), _TRIES // 4)
            for _ in range(DRAWS)
        ]
    )
    spreads = vectors.std(axis=0) / _TOLERANCES
    return Learned(
        best=_to_fit(best),
        drawn=tuple(_to_fit(each) for each in vectors),
        unknown=tuple(
            term
            for term, spread in zip(TERMS, spreads, strict=True)
            if spread > _UNKNOWN_FROM and _has(term, seen)
        ),
    )


def _moved(usual: Floats, random: np.random.Generator) -> Floats:
    return np.asarray(usual + _TOLERANCES * random.normal(size=len(TERMS)))


def _has(term: str, seen: Sequence[Seen]) -> bool:
    """Only messages around a ring follow each other."""
    return term != TERMS[3] or any(getattr(each.load, "rounds", 0) for each in seen)


def fit(seen: Sequence[Seen]) -> Fit:
    """The figures with which launches are predicted best."""
    usual = _to_vector(_usual(seen))
    return _to_fit(_fitted(seen, usual, usual))


def _usual(seen: Sequence[Seen]) -> Fit:
    """What is usual for steps of this length."""
    shortest = min(min(each.steps_s) for each in seen)
    return replace(USUAL, overhead_s=max(USUAL.overhead_s, shortest / 50))


def _drawn(seen: Sequence[Seen], random: np.random.Generator) -> list[Seen]:
    """Of every point as many launches as it has, drawn again."""
    return [
        replace(each, steps_s=tuple(random.choice(each.steps_s, size=len(each.steps_s))))
        for each in seen
    ]


def _fitted(seen: Sequence[Seen], start: Floats, usual: Floats, most_tries: int = _TRIES) -> Floats:
    # It takes long to import, and most reports predict nothing.
    from scipy.optimize import minimize

    logarithms = [np.log(each.steps_s) for each in seen]

    def misfit(vector: Floats) -> float:
        made = _to_fit(vector)
        errors = sum(
            float(np.abs(math.log(step_s(each.load, made)) - steps).sum())
            for each, steps in zip(seen, logarithms, strict=True)
        )
        return errors / NOISE + float((((vector - usual) / _TOLERANCES) ** 2).sum()) / 2

    found = minimize(
        misfit,
        start,
        method="Nelder-Mead",
        options={"xatol": 0.02, "fatol": 0.02, "maxfev": most_tries},
    )
    return np.asarray(found.x, dtype=np.float64)


def _to_vector(made: Fit) -> Floats:
    return np.log([made.stretch - 1.0, made.overhead_s, made.hiding - 1.0, made.round_s])


def _to_fit(vector: Floats) -> Fit:
    above, overhead_s, hiding, round_s = (float(each) for each in np.exp(np.clip(vector, -20, 6)))
    return Fit(stretch=1.0 + above, overhead_s=overhead_s, hiding=1.0 + hiding, round_s=round_s)
