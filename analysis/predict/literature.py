"""How far the formulas are off on other people's measurements, beyond what they were fitted on.

Decides which rows are fitted and which are predicted.  The formulas are those of `models`; what is
known of a cluster there is what its authors published, so less than launches of the suite tell.

Sources, both as CSV beside `analysis.published`:

    cm_dare.csv  asynchronous parameter servers of TensorFlow, twelve clusters with 1 to 8 workers:
                 Li, Walls and Guo, Characterizing and modeling distributed training with transient
                 cloud GPU servers, ICDCS 2020; github.com/cake-lab/CM-DARE (Apache 2.0), the rate
                 of the whole run.
    pollux.csv   all-reduce of PyTorch, six models with one replica on each of 1 to 16 nodes: Qiao
                 et al., Pollux, OSDI 2021; github.com/petuum/adaptdl, branch osdi21-artifact,
                 placements and scalability, five digits.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd

from analysis.predict.baselines import baselines
from analysis.predict.fitting import NOISE, SIDE, USUAL
from analysis.predict.models import Fit, Floats, ring_load, shared_load, step_s
from analysis.predict.prediction_check import Figures, figures

FOLDER = Path(__file__).resolve().parents[1] / "published"

#: Spread of workers from step to step where nobody published it: it makes steps of 16 nodes 9 %
#: longer, as launches of the suite on machines that do nothing else have it.
SPREAD = 0.05

#: The most workers of the rows that are fitted.
SMALL = 4

#: How far figures may be from where a fit begins, as a standard deviation on the logarithm.
_TOLERANCE = 1.5

#: A ring's gradients usually take as long as so many of its rounds.
_ROUNDS = 50

#: How much of its step a worker waits for the busiest station at most where that is not known.
_HIDDEN_BELOW = 0.3


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldOut:
    """Errors on rows that no fit has seen.

    Attributes:
        fitted, predicted: numbers of workers, in words.
        own: of the formulas.
        coverage_90: share of the rows inside the intervals.
        others: of models without links, by their names.
        by_workers: of the formulas, by the number of workers.
        unknown: what the fitted rows do not tell, in words.
    """

    name: str
    fitted: str
    predicted: str
    rows: int
    own: Figures
    coverage_90: float
    others: Mapping[str, Figures]
    by_workers: Mapping[int, Figures]
    unknown: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    workers: int
    error: float
    inside: bool
    others: Mapping[str, float]


Truths = npt.NDArray[np.bool_]

#: Seconds of a step of all workers.
_Step = Callable[[int], float]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Fitted:
    """Rows of one cluster or batch, and the fit to some of them.

    Attributes:
        seen, unseen: which rows were fitted, and which are predicted.
        missed: by how much a fit without the most workers misses these, on the logarithm.
        is_hidden: the busiest station is used too little to be known.
    """

    workers: Floats
    steps: Floats
    seen: Truths
    unseen: Truths
    step: _Step
    missed: float
    is_hidden: bool = False

    @property
    def errors(self) -> list[float]:
        """Of the fit, on the logarithm."""
        known = zip(self.workers[self.seen], self.steps[self.seen], strict=True)
        return [math.log(self.step(int(count)) / step) for count, step in known]


def held_out() -> tuple[HeldOut, ...]:
    """All data sets, each fitted on its small rows."""
    return (_servers((1, 2, 3, 4)), _servers((1, 2, 8)), _rings())


def _servers(fitted: Sequence[int]) -> HeldOut:
    """Asynchronous servers, each cluster on its own; two figures are fitted to each.

    How much runs differ, the distances from all fits together tell: a cluster has a run per row.
    """
    found = [
        _cluster(own, fitted)
        for _, own in pd.read_csv(FOLDER / "cm_dare.csv").groupby(["cluster", "model"], sort=False)
    ]
    noise = _noise([each.errors for each in found], free=2)
    rows = [row for each in found for row in _compared(each, noise)]
    hidden = sum(each.is_hidden for each in found)
    unknown = f"the busiest station, in {hidden} of {len(found)} clusters: it is used too little"
    return _summed("asynchronous servers (CM-DARE)", rows, fitted, unknown if hidden else "")


def _cluster(own: pd.DataFrame, fitted: Sequence[int]) -> _Fitted:
    workers, steps = own["workers"].to_numpy(), (own["workers"] / own["steps_per_s"]).to_numpy()
    seen, unseen = np.isin(workers, fitted), ~np.isin(workers, fitted)
    if fitted[-1] != SMALL:
        unseen &= workers > 2
    demand, step = _queue(workers[seen], steps[seen])
    inner = workers[seen] < workers[seen].max()
    _, fewer = _queue(workers[seen][inner], steps[seen][inner])
    return _Fitted(
        workers=workers,
        steps=steps,
        seen=seen,
        unseen=unseen,
        step=step,
        missed=math.log(fewer(int(workers[seen].max())) / steps[seen][-1]),
        is_hidden=bool(demand * fitted[-1] / steps[seen][-1] < _HIDDEN_BELOW),
    )


def _queue(workers: Floats, steps: Floats) -> tuple[float, _Step]:
    """The demand of the busiest station, and the steps that follow from it."""
    first = float(steps[0])
    plain = Fit(stretch=1.0, overhead_s=0.0, hiding=1.0, round_s=0.0)

    def step(vector: Floats, count: int) -> float:
        think, demand = np.exp(np.clip(vector, -30, 10))
        return step_s(shared_load(count, float(think), [float(demand)]), plain)

    starts = [np.log([first * share, first * (1 - share)]) for share in (0.9, 0.5, 0.1)]
    best = _fitted(lambda v: [step(v, int(n)) for n in workers], steps, starts)
    return float(np.exp(best[1])), lambda count: step(best, count)


def _rings() -> HeldOut:
    """All-reduce: link, overlap and rounds of each model, alike for all batches."""
    rows: list[_Row] = []
    for _, own in pd.read_csv(FOLDER / "pollux.csv").groupby("model", sort=False):
        alone = own[own["nodes"] == 1].set_index("local_batch")["step_s"]
        known = own[(own["nodes"] > 1) & own["local_batch"].isin(alone.index)]
        small = known[known["nodes"] <= SMALL]
        step, fewer = _ring(small, alone), _ring(small[small["nodes"] < SMALL], alone)
        most = small[small["nodes"] == SMALL]
        missed = float(np.mean([math.log(fewer(n, b) / t) for n, b, t in _triples(most)]))
        for batch, each in known.groupby("local_batch"):
            lone, size = float(alone[batch]), int(str(batch))
            counts = np.concatenate([[1], each["nodes"].to_numpy()])
            steps = np.concatenate([[lone], each["step_s"].to_numpy()])
            made = _Fitted(
                workers=counts,
                steps=steps,
                seen=counts <= SMALL,
                unseen=counts > SMALL,
                step=_of_batch(step, size),
                missed=missed,
            )
            rows += _compared(made, _noise([made.errors]))
    unknown = "the spread of steps, which is assumed (5 %), and how much of a step can overlap"
    return _summed("all-reduce (Pollux)", rows, (1, 2, 3, SMALL), unknown)


def _of_batch(step: Callable[[int, int], float], batch: int) -> _Step:
    return lambda count: step(count, batch)


def _triples(rows: pd.DataFrame) -> Iterator[tuple[int, int, float]]:
    for row in rows.itertuples(index=False):
        yield int(str(row.nodes)), int(str(row.local_batch)), float(str(row.step_s))


def _ring(rows: pd.DataFrame, alone: pd.Series) -> Callable[[int, int], float]:
    """Steps of nodes and batches, by link, overlap and rounds that fit these rows."""
    triples = list(_triples(rows))
    steps = np.array([step for *_, step in triples])

    def step(vector: Floats, nodes: int, batch: int) -> float:
        network_s, above, round_s = (float(x) for x in np.exp(np.clip(vector, -30, 5)))
        made = Fit(stretch=1.0, overhead_s=0.0, hiding=1.0 + above, round_s=round_s)
        return step_s(ring_load(nodes, float(alone[batch]), network_s, spread=SPREAD), made)

    usual = float(np.median(steps)) / 2
    start = np.log([usual, USUAL.hiding - 1.0, usual / _ROUNDS])
    best = _fitted(lambda v: [step(v, n, b) for n, b, _ in triples], steps, [start])
    return lambda nodes, batch: step(best, nodes, batch)


def _fitted(
    steps_of: Callable[[Floats], Sequence[float]], steps: Floats, starts: Sequence[Floats]
) -> Floats:
    """Least absolute errors of the logarithms, from the best of some starts; near to these.

    How near follows from how much rows scatter around a first fit: nobody published that.
    """
    from scipy.optimize import minimize

    def errors(vector: Floats) -> Floats:
        return np.abs(np.log(np.array(steps_of(vector)) / steps))

    def misfit(vector: Floats, start: Floats, noise: float) -> float:
        far = ((vector - start) ** 2).sum() / 2 / _TOLERANCE**2
        return float(errors(vector).sum() / noise + far)

    def best(begin: Floats, start: Floats, noise: float) -> tuple[float, Floats]:
        found = minimize(misfit, begin, args=(start, noise), method="Nelder-Mead")
        return float(found.fun), np.asarray(found.x, dtype=np.float64)

    first = [(*best(start, start, NOISE), start) for start in starts]
    _, vector, start = min(first, key=lambda each: each[0])
    return best(vector, start, max(NOISE, float(errors(vector).mean())))[1]


def _noise(errors: Sequence[Sequence[float]], free: int = 0) -> float:
    """Of a run, from the distances of runs from their fits.

    Args:
        errors: of each fit.
        free: figures of each, with which a fit by least absolute errors goes through so many runs.
    """
    sizes = sum(abs(each) for own in errors for each in own)
    return max(NOISE, sizes / max(1, sum(len(own) - free for own in errors)))


def _compared(made: _Fitted, noise: float) -> Iterator[_Row]:
    """Rows that were not fitted, with the interval that a hold-out among the others gives."""
    workers, steps, seen, unseen = made.workers, made.steps, made.seen, made.unseen
    curves = baselines(workers[seen], steps[seen])
    most = float(workers[seen].max())
    for count, measured in zip(workers[unseen], steps[unseen], strict=True):
        predicted = made.step(int(count))
        growth = 1.0 + max(0.0, math.log2(count / most))
        sides = [SIDE * size * growth for size in (noise, max(noise, abs(made.missed)))]
        slower, faster = (sides[1], sides[0]) if made.missed < 0 else (sides[0], sides[1])
        off = math.log(measured / predicted)
        yield _Row(
            workers=int(count),
            error=predicted / measured - 1.0,
            inside=-faster <= off <= slower,
            others={
                name: float(curve(np.array([float(count)]))[0]) / measured - 1.0
                for name, curve in curves.items()
            },
        )


def _summed(name: str, rows: Sequence[_Row], fitted: Sequence[int], unknown: str) -> HeldOut:
    counts = sorted({row.workers for row in rows})
    return HeldOut(
        name=name,
        fitted=", ".join(map(str, fitted)),
        predicted=", ".join(map(str, counts)),
        rows=len(rows),
        own=figures([row.error for row in rows]),
        coverage_90=float(np.mean([row.inside for row in rows])),
        others={each: figures([row.others[each] for row in rows]) for each in rows[0].others},
        by_workers={
            count: figures([row.error for row in rows if row.workers == count]) for count in counts
        },
        unknown=unknown,
    )
