"""Why one point is faster than another: the parts of a step, by how much they differ.

Decides which pairs are explained (those that differ by the rule of decision), which parts stand
first, and when a single launch beside sound ones has a cause at all.  It needs no traced steps.
How compute is divided in the mean step of one point, which table and figure show alike, is decided
here too.  What the parts by cause are is decided in `explained_parts`, how they are told in
`report.explanation`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache

import numpy as np
import pandas as pd

from analysis.data.cases import Case, Point
from analysis.stats.comparisons import Comparison, comparisons
from analysis.stats.decision import MARGIN, Outcome
from analysis.stats.doubts import FAR
from analysis.stats.explained_parts import (
    MOST_STRETCH,
    Cause,
    explained_parts,
    link_savings,
    lost_shares,
)
from analysis.stats.statistics import Estimate, subtract
from ps_allreduce.record.records import FOREIGN_LIMIT

#: Headline, tables and figures all ask for the explanations of the same few cases.
_CASES = 16

#: What other programs on the processors make longer.
_DISTURBED = (Cause.SLOWED, Cause.IN_TURN, Cause.EXCHANGE, Cause.DISPATCH)

#: What makes gradients late: the longer it takes, the less of the exchange is exposed, and the less
#: workers wait for each other otherwise.
_HIDING = (Cause.COMPUTE, Cause.SLOWED, Cause.INPUT, Cause.WORKER)

#: What a launch shows by itself: how fast its workers are, waits for input, bytes, rates of links,
#: and lost packets: counters saw these, and stalled steps are later than others of the same launch.
_SHOWN = (
    *(Cause.WORKER, Cause.INPUT, Cause.HOT_SERVER, Cause.HOT_ROWS, Cause.SLOW_LINK),
    Cause.LOST,
)

#: Seconds: what parts differ by less than this, no clock tells.
_ROUNDED_S = 1e-6

#: What the busiest link would save: a bound, of which some may be hidden.
OF_LINKS = (Cause.HOT_SERVER, Cause.HOT_ROWS, Cause.SLOW_LINK)


@dataclass(frozen=True, slots=True, kw_only=True)
class CausedPart:
    """What a cause makes of the difference between two mean steps.

    Attributes:
        seconds: with an interval.
        proof: what tells whether the cause is there at all.  Of what a launch shows by itself
            (`_SHOWN`) these are its seconds before others are taken off: those vary more.
        limit: `up to` or `down to` of what links would save or other programs explain, which nobody
            measured; `at least` or `at most` of what that leaves of other parts; else empty.
        saved_s: what the busiest link would save, before that is stretched; None of other causes.
    """

    cause: Cause
    seconds: Estimate
    proof: Estimate
    limit: str = ""
    saved_s: float | None = None

    @property
    def interval(self) -> tuple[float | None, float | None]:
        """Of the seconds; none of a limit."""
        return (None, None) if self.limit else self.seconds.ends[1:]

    @property
    def sure(self) -> bool:
        """It is there, and its interval lies above 0."""
        return self.there and _is_positive(self.seconds)

    @property
    def there(self) -> bool:
        """The interval of the proof lies above 0."""
        return _is_positive(self.proof)

    @property
    def unproven(self) -> Estimate:
        """What more launches must show before the part is sure."""
        return self.proof if _is_positive(self.seconds) else self.seconds


def _is_positive(estimate: Estimate) -> bool:
    """The interval lies above 0."""
    return estimate.low is not None and estimate.low > 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """By how much the mean step of one side is longer, and why.

    Attributes:
        step: seconds.
        share: of the step of the other side.
        parts: they add up to the step; the largest first.
    """

    step: Estimate
    share: float
    parts: tuple[CausedPart, ...]

    @property
    def told(self) -> tuple[CausedPart, ...]:
        """Causes that even a single launch has for sure: longer by more than the margin.

        What a launch shows by itself (`_SHOWN`) varies by much less than its step does.  Of all
        else the step must be longer for sure, too.
        """
        if self.step.mean <= 0.0:
            return ()
        least_s, longer = MARGIN * self.step.mean / self.share, (self.step.low or 0.0) > 0.0
        return tuple(
            part
            for part in self.parts
            if part.there and part.seconds.mean > least_s and (longer or part.cause in _SHOWN)
        )

    @property
    def causes(self) -> tuple[CausedPart, ...]:
        """What makes the step longer; the largest first."""
        return tuple(part for part in self.parts if part.seconds.mean > 0.0)


def difference(
    slower: pd.DataFrame, faster: pd.DataFrame, alone_s: float | None, growth: float = 1.0
) -> Difference:
    """Hold the launches of one side against those of another one.

    Args:
        slower, faster: rows of the table of runs, by turn.
        alone_s: what the compute of a step takes alone, where that is known.
        growth: the global batch of the faster side over that of the slower one.  The slower one
            needs so many of its steps for as many examples.
    """
    fastest = [rows["fastest_link_bits_per_s"].dropna().astype(float) for rows in (slower, faster)]
    best = max((float(rates.max()) for rates in fastest if len(rates)), default=0.0)
    long, short = (explained_parts(rows, alone_s, best) for rows in (slower, faster))
    of_slower, of_faster = (link_savings(rows, best).mean() for rows in (slower, faster))
    saved = of_slower - of_faster
    if _other_numbers_of_servers(slower, faster):
        saved[Cause.HOT_SERVER] = 0.0
        long, short = (_moved(p, Cause.HOT_SERVER, Cause.EXCHANGE, 1.0) for p in (long, short))
    long, short = _without_needless_links(long, short, MOST_STRETCH * saved)
    long[Cause.FEWER_WORKERS] = (growth - 1) * long.sum(axis="columns")
    short[Cause.FEWER_WORKERS] = 0.0
    if _only_lossy(slower, faster):
        usual_s = float(short[Cause.EXCHANGE].mean())
        long, short = (_sent_again(parts, usual_s) for parts in (long, short))
    shown = {cause: subtract(long[cause], short[cause]) for cause in _SHOWN if cause in long}
    long, short = _netted(long, short)
    if _foreign(slower) - _foreign(faster) > FOREIGN_LIMIT:
        share = _share_of_others(long, short, slower)
        long, short = _disturbed(long, share), _disturbed(short, share)
    step = subtract(long.sum(axis="columns"), short.sum(axis="columns"))
    seconds = {cause: subtract(long[cause], short[cause]) for cause in Cause if cause in long}
    parts = _caused(seconds, shown, saved)
    return Difference(
        step=step,
        share=step.mean / float(short.sum(axis="columns").mean()),
        parts=tuple(sorted(parts, key=lambda part: -part.seconds.mean)),
    )


def _caused(
    seconds: Mapping[Cause, Estimate], shown: Mapping[Cause, Estimate], saved: pd.Series
) -> list[CausedPart]:
    """What each cause takes, without those that take nothing.

    Args:
        saved: seconds that the busiest link would save, by cause.
    """
    saved_s = sum(seconds[cause].mean for cause in OF_LINKS)
    others_s = seconds[Cause.FOREIGN].mean if Cause.FOREIGN in seconds else 0.0
    left = {cause: others_s + saved_s * (cause is Cause.EXCHANGE) for cause in _DISTURBED}
    return [
        CausedPart(
            cause=cause,
            seconds=each,
            proof=shown.get(cause, each),
            limit=_limit(cause, each.mean, left.get(cause, 0.0)),
            saved_s=float(saved[cause]) if cause in OF_LINKS else None,
        )
        for cause, each in seconds.items()
        if abs(each.mean) > _ROUNDED_S
    ]


def _limit(cause: Cause, mean_s: float, taken_s: float) -> str:
    """Of a part that is an estimate, or what an estimate leaves.

    Args:
        taken_s: what estimates have taken off the part.
    """
    if cause in OF_LINKS or cause is Cause.FOREIGN:
        return "up to" if mean_s > 0.0 else "down to"
    if abs(taken_s) <= _ROUNDED_S:
        return ""
    return "at least" if taken_s > 0.0 else "at most"


def _without_needless_links(
    long: pd.DataFrame, short: pd.DataFrame, most: pd.Series
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The parts, without differences that links cannot make, or that are too small to tell.

    They stay in the rest of the exchange.

    Args:
        most: seconds by which each cause may differ at most: links may cost both sides alike.
    """
    least_s = MARGIN * abs(
        float(long.sum(axis="columns").mean() - short.sum(axis="columns").mean())
    )
    for cause in OF_LINKS:
        apart = float(long[cause].mean() - short[cause].mean())
        told = min(apart, max(0.0, most[cause]))
        if abs(told) < least_s:
            told = 0.0
        if told != apart:
            share = 1.0 - told / apart
            long, short = (_moved(parts, cause, Cause.EXCHANGE, share) for parts in (long, short))
    return long, short


def _other_numbers_of_servers(slower: pd.DataFrame, faster: pd.DataFrame) -> bool:
    """What equal shares save is then no difference: a single server is balanced, and holds all."""
    numbers = [set(rows["num_ps"].astype(int)) - {0} for rows in (slower, faster)]
    return all(numbers) and numbers[0] != numbers[1]


def _only_lossy(slower: pd.DataFrame, faster: pd.DataFrame) -> bool:
    """Both send as much over links of the same rates in the same way, and one loses packets."""
    ways = set(slower["strategy"]) | set(faster["strategy"])
    needed = [rows["network_s"].astype(float).mean() for rows in (slower, faster)]
    return (
        len(ways) == 1
        and abs(needed[0] - needed[1]) <= MARGIN * needed[1]
        and bool(lost_shares(slower).all())
        and not lost_shares(faster).any()
    )


def _sent_again(parts: pd.DataFrame, usual_s: float) -> pd.DataFrame:
    """The parts, with what the exchange takes beyond the usual in what lost packets cost.

    Besides steps that stall, packets that are sent again and senders that slow down make it longer.
    """
    beyond = parts[Cause.EXCHANGE] - usual_s
    changed = {
        Cause.LOST: parts[Cause.LOST] + beyond,
        Cause.EXCHANGE: parts[Cause.EXCHANGE] - beyond,
    }
    return parts.assign(**changed)


def _foreign(launches: pd.DataFrame) -> float:
    known = launches["foreign_load"].dropna().astype(float)
    return float(known.mean()) if len(known) else 0.0


def _share_of_others(long: pd.DataFrame, short: pd.DataFrame, slower: pd.DataFrame) -> float:
    """Of what other programs may have made longer, as much as a verdict would grant them.

    And no more than the steps of a launch are longer than where nobody disturbed this setting.
    """
    named = list(_DISTURBED)
    longer_s = float((long[named].mean() - short[named].mean()).sum())
    own = slower[["mean_step_s", "foreign_load"]].astype(float)
    step_s, load = own["mean_step_s"], own["foreign_load"].fillna(0.0)
    undisturbed = step_s[own["foreign_load"] <= FOREIGN_LIMIT]
    beyond_s = step_s - (undisturbed.min() if len(undisturbed) else 0.0)
    most_s = float(np.minimum(step_s * (1 - (1 - load) ** FAR), beyond_s.clip(lower=0.0)).mean())
    return min(1.0, most_s / longer_s) if longer_s > 0.0 else 0.0


def _disturbed(parts: pd.DataFrame, share: float) -> pd.DataFrame:
    """The parts, with a share of what other programs disturb in one of its own."""
    parts = parts.assign(**{Cause.FOREIGN: 0.0})
    for cause in _DISTURBED:
        parts = _moved(parts, cause, Cause.FOREIGN, share)
    return parts


def _netted(long: pd.DataFrame, short: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The parts, with what links only seem to cause, and late gradients hide, taken off them.

    Links come first: what they cost is an estimate, and no more than the exchange is longer; what
    workers compute was measured.  Of what makes gradients late there is only the rest to gain:
    without it, more of the exchange is exposed.
    """
    offsets = [(Cause.EXCHANGE, OF_LINKS), (Cause.IN_TURN, _HIDING), (Cause.EXCHANGE, _HIDING)]
    for less, group in offsets:
        differences = long.mean() - short.mean()
        saved = -differences[less]
        cause = max(group, key=lambda each: differences[each])
        if min(saved, differences[cause]) > 0.0:
            share = min(1.0, differences[cause] / saved)
            long, short = (_moved(parts, less, cause, share) for parts in (long, short))
    return long, short


def _moved(parts: pd.DataFrame, less: Cause, cause: Cause, share: float) -> pd.DataFrame:
    """The parts, with a share of one of them in another one."""
    changed = {cause: parts[cause] + share * parts[less], less: (1 - share) * parts[less]}
    return parts.assign(**changed)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Explanation:
    """Why the first of two points is faster than the second one."""

    row: Comparison
    difference: Difference

    @property
    def faster(self) -> Point:
        """The first."""
        return self.row.first.best

    @property
    def slower(self) -> Point:
        """The second."""
        return self.row.second.best

    @property
    def unseen(self) -> tuple[Point, ...]:
        """Those of the two into whose steps nobody sees."""
        return tuple(p for p in (self.faster, self.slower) if p.launches["compute_s"].isna().all())


@lru_cache(maxsize=_CASES)
def explanations(case: Case) -> tuple[Explanation, ...]:
    """Of every pair that differs, in the order of the decisions; the planned ones come first."""
    return tuple(
        _explain(case, row)
        for row in _differing(case)
        if all(point.launches["mean_step_s"].notna().all() for point in row.points)
    )


def seen_explanations(case: Case) -> list[Explanation]:
    """Those of pairs into whose steps somebody sees."""
    return [told for told in explanations(case) if not told.unseen]


def _differing(case: Case) -> Iterator[Comparison]:
    """The faster one first."""
    for row in comparisons(case).by_pair.values():
        if row.outcome in (Outcome.FASTER, Outcome.SLOWER):
            yield row.better_first()


def _explain(case: Case, row: Comparison) -> Explanation:
    faster, slower = row.points
    growth = faster.experiment.global_batch / slower.experiment.global_batch
    return Explanation(
        row=row,
        difference=difference(slower.launches, faster.launches, alone_s(case, slower), growth),
    )


def alone_s(case: Case, point: Point) -> float | None:
    """What the compute of a step takes alone: in `single`, with as many threads where measured.

    Under strong scaling it is a worker's share of that.  It is the median of the launches, which
    one disturbed launch does not spoil; of that point itself the mean, because nothing slows it
    beyond itself.
    """
    bases = [each for each in case.points if each.setting.traits.max_workers == 1]
    bases = [each for each in bases if not each.known("compute_s").empty]
    like = [each for each in bases if each.threads == point.threads]
    base = next(iter(like or bases), None)
    if base is None:
        return None
    known = base.known("compute_s")
    alone = float(known.mean() if base is point else known.median())
    own, whole = (each.experiment.of_each.examples_per_step for each in (point, base))
    return alone * own / whole


class StepPart(StrEnum):
    """What a worker does with the time of a step."""

    INPUT = "input"
    ALONE = "compute alone"
    SLOWED = "slower compute"
    WAITING = "waiting for others"
    EXCHANGE = "exchange and update"
    UPDATE = "update"
    DISPATCH = "dispatch"
    UNSEEN = "not seen"


_OF_MEAN_STEP = [
    *("mean_step_s", "input_wait_s", "compute_s", "stated_compute_s", "waiting_s", "exchange_s"),
    "dispatch_s",
]


def mean_parts(case: Case, point: Point) -> pd.Series:
    """Seconds by part, means over the measured launches; they add up to the mean step.

    A part that is not known is not a number.  Compute alone is what an emulated accelerator was
    asked for, else what `single` took; where neither is known, all of compute is there.  What is
    slowed comes from the means: single launches vary to both sides, and would only add to it.
    """
    means = point.measured[_OF_MEAN_STEP].astype(float).mean()
    alone = means["stated_compute_s"]
    if math.isnan(alone):
        alone = alone_s(case, point) or math.nan
    slowed = float(np.maximum(means["compute_s"] - alone, 0.0))
    sent = point.sends
    unseen = means["mean_step_s"] - np.nan_to_num(means["dispatch_s"])
    parts = {
        StepPart.INPUT: means["input_wait_s"],
        StepPart.ALONE: means["compute_s"] - (0.0 if math.isnan(slowed) else slowed),
        StepPart.SLOWED: slowed,
        StepPart.WAITING: means["waiting_s"],
        StepPart.EXCHANGE: means["exchange_s"] if sent else math.nan,
        StepPart.UPDATE: math.nan if sent else means["exchange_s"],
        StepPart.DISPATCH: means["dispatch_s"],
        StepPart.UNSEEN: unseen if math.isnan(means["compute_s"]) else math.nan,
    }
    return pd.Series(parts, dtype=float)
