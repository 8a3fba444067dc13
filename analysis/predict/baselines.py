"""What models that know nothing of links predict from the same launches.  Pure.

Decides which models a prediction has to beat.  All are fitted to steps of one setting against
workers n, by least squares of logarithms:

    linear     every worker as fast as those that were measured
    power      t = t_1 n^p
    amdahl     rate = n x_1 / (1 + s (n - 1))                         (Amdahl, AFIPS 1967)
    usl        rate = n x_1 / (1 + s (n - 1) + k n (n - 1))            (Gunther, 1993)
    ernest     t = q_0 + q_1 ln n + q_2 n, none below 0                (Venkataraman, NSDI 2016)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import numpy.typing as npt

from analysis.predict.models import Floats

Curve = Callable[[Floats], Floats]


def baselines(workers: npt.ArrayLike, steps_s: npt.ArrayLike) -> Mapping[str, Curve]:
    """Seconds of a step of all workers against their number, by the name of each model.

    Args:
        workers: of each launch,
        steps_s: and its step [launches].
    """
    counts = np.asarray(workers, dtype=np.float64)
    steps = np.asarray(steps_s, dtype=np.float64)
    return {
        "linear": _linear(steps),
        "power": _power(counts, steps),
        "amdahl": _contention(counts, steps, with_coherence=False),
        "usl": _contention(counts, steps, with_coherence=True),
        "ernest": _ernest(counts, steps),
    }


def _linear(steps: Floats) -> Curve:
    mean = float(np.exp(np.log(steps).mean()))
    return lambda n: np.full(n.shape, mean)


def _power(counts: Floats, steps: Floats) -> Curve:
    slope = 0.0
    if len(set(counts)) > 1:
        slope = float(np.polyfit(np.log(counts), np.log(steps), 1)[0])
    first = float(np.exp(np.mean(np.log(steps) - slope * np.log(counts))))

    def curve(n: Floats) -> Floats:
        made: Floats = first * n**slope
        return made

    return curve


def _contention(counts: Floats, steps: Floats, *, with_coherence: bool) -> Curve:
    from scipy.optimize import least_squares

    def of(vector: Floats, n: Floats) -> Floats:
        kappa = vector[2] if with_coherence else 0.0
        made: Floats = np.exp(vector[0]) * (1.0 + vector[1] * (n - 1) + kappa * n * (n - 1))
        return made

    start = [float(np.log(steps.min())), 0.05, 0.001][: 2 + with_coherence]
    low = [-np.inf, 0.0, 0.0][: len(start)]

    def errors(vector: Floats) -> Floats:
        return np.asarray(np.log(of(vector, counts) / steps))

    vector: Floats = least_squares(errors, start, bounds=(low, np.inf)).x

    def curve(n: Floats) -> Floats:
        return of(vector, n)

    return curve


def _ernest(counts: Floats, steps: Floats) -> Curve:
    from scipy.optimize import nnls

    def terms(n: Floats) -> Floats:
        return np.stack([np.ones_like(n), np.log(n), n], axis=1)

    weights, _ = nnls(terms(counts) / steps[:, None], np.ones_like(steps))
    return lambda n: np.asarray(terms(n) @ weights, dtype=np.float64)
