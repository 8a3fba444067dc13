"""Whether the steps of a run kept one speed, and which of them stalled.

Decides the label of a run from its measured steps, as Barrett et al. (2017) label benchmarks: flat,
warming up, slowing down, or unsteady.  The steps are cut where their level changes; the cuts are
those of the least squares with a price for every cut, which PELT finds as well (Killick, Fearnhead
and Eckley 2012).  A label is told and counted; no run is dropped for it.  When a warm-up ends is
decided by the runner.

Decides also what the main hump of the step times is, which steps stalled, and what a second hump
is.  TCP's timers wait some 200 ms, whatever a step takes (RFC 6298, RFC 8985), so a packet that is
lost at the end of a message makes a step later by about as much.  The main hump is the shortest
interval that holds a third of the steps: as the shortest half (Rousseeuw and Leroy 1988) it tells
location and width, whatever lies on one side of it, but a hump that holds less than half of the
steps is found as well.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from analysis.derive.step_parts import StepParts
from ps_allreduce.point.network import RTO_MIN_S
from ps_allreduce.record.step_table import Floats, Integers, Phase, StepTable
from ps_allreduce.serialization import Columns

#: Levels that differ by less are the same.
SAME = 0.03

#: Steps are put together to so many batches, and fewer than this many steps have no label.
BATCHES, LEAST_STEPS = 40, 20

#: Batches of a stretch with a level of its own, at least; and of the steady end of a steady run.
SHORTEST, STEADY_SHARE = 3, 0.25

#: Price of a cut in variances, times the logarithm of the batches: above Schwarz's 2, because the
#: steps of a run are not independent.
PRICE = 3.0


class Steadiness(StrEnum):
    """How the step time of a run went."""

    FLAT = "flat"
    WARMING_UP = "warming up"
    SLOWING_DOWN = "slowing down"
    UNSTEADY = "unsteady"


def steadiness_of(steps: StepTable, *, meets: bool) -> Steadiness | None:
    """The label of a run; None where it has too few measured steps.

    Args:
        meets: all workers meet in every step, which then counts once.
    """
    relative = _step_times(steps, meets=meets)
    if len(relative) < LEAST_STEPS:
        return None
    count = min(BATCHES, len(relative) // 3)
    # A median of three or more, so that one step that was late is no change.
    return label_of(np.array([np.median(part) for part in np.array_split(relative, count)]))


def _step_times(steps: StepTable, *, meets: bool) -> Floats:
    """Measured steps of all workers as they ended, each over the median of its worker.

    Where workers meet, one value for each step: what they share would look like values that agree.
    A worker most of whose steps took no time, by a clock that was set, says nothing.
    """
    order, times = [np.empty(0)], [np.empty(0)]
    for table in steps.by_worker():
        measured = table.select(table.phase == Phase.MEASURED)
        durations = np.diff(measured.end)
        if len(durations) and (median := np.median(durations)) > 0.0:
            order.append((measured.step.astype(np.float64) if meets else measured.end)[1:])
            times.append(durations / median)
    places, every = np.concatenate(order), np.concatenate(times)
    if not meets:
        return every[np.argsort(places, kind="stable")]
    _, step = np.unique(places, return_inverse=True)
    return np.asarray(np.bincount(step, every) / np.bincount(step))


def label_of(levels: Floats) -> Steadiness:
    """The label of a series of step times, oldest first; any unit.

    It is flat where its last level is that of all steps together: a longer run would have the same
    rate.  The end is the last stretch and all before it that are on its level.  Without a steady
    end of a quarter of the series it is unsteady.
    """
    cuts = change_points(levels)
    stretches = np.split(levels, cuts)
    means = np.array([stretch.mean() for stretch in stretches])
    if abs(levels.mean() / means[-1] - 1) <= SAME:
        return Steadiness.FLAT
    other = np.flatnonzero(np.abs(means / means[-1] - 1) > SAME)
    steady = sum(len(stretch) for stretch in stretches[other[-1] + 1 :])
    if steady < STEADY_SHARE * len(levels):
        return Steadiness.UNSTEADY
    slower = (means[other] > means[-1]).all()
    return Steadiness.WARMING_UP if slower else Steadiness.SLOWING_DOWN


def change_points(levels: Floats) -> list[int]:
    """Where a series changes its mean: the first positions of all stretches but the first."""
    count, price = len(levels), PRICE * np.log(len(levels)) * _variance(levels)
    sums, squares = (np.concatenate([[0.0], np.cumsum(levels**power)]) for power in (1, 2))
    best, last = np.full(count + 1, np.inf), np.zeros(count + 1, dtype=int)
    best[0] = -price
    for end in range(SHORTEST, count + 1):
        begins = np.arange(0, end - SHORTEST + 1)
        total = sums[end] - sums[begins]
        costs = squares[end] - squares[begins] - total**2 / (end - begins)
        all_ = best[begins] + costs + price
        last[end] = int(np.argmin(all_))
        best[end] = all_[last[end]]
    cuts, position = [], int(last[count])
    while position > 0:
        cuts.append(position)
        position = int(last[position])
    return cuts[::-1]


def _variance(levels: Floats) -> float:
    """Of the noise around the levels, from neighbours, so that changes of level hardly add to it.

    A mean, since steps of two lengths in random order mostly have a neighbour of their own length.
    """
    return float(max(np.mean(np.diff(levels) ** 2) / 2, (1e-9 * np.median(levels)) ** 2))


#: Fewer measured steps of a worker tell no humps.
LEAST_FOR_HUMPS = 100

#: Share of the steps that the main hump holds at least.
IN_HUMP = 1 / 3

#: Steps that are later by this share of the least retransmission timeout stalled: TCP's timers wait
#: a little longer.
STALL_TIMEOUTS = 0.75

#: And by so many widths of the main hump: step times that vary much are late without a stall.
STALL_WIDTHS = 6.0

#: Share of the steps that each of two humps holds at least.
LEAST_SHARE = 0.1

#: Two humps are apart by so many seconds, or by this share of the earlier one.
APART_S, APART_SHARE = 0.1, 0.5

#: And the gap between them is so wide beside both of them together.  In simulations of one hump
#: (normal, lognormal, gamma, exponential; 100 to 400 steps) it is below 0.6.
LEAST_GAP = 0.75


@dataclass(frozen=True, slots=True, kw_only=True)
class Stalls(Columns):
    """The humps of the step times of a run, and what is beyond them; seconds.

    Attributes:
        hump_s: middle of the main hump; of workers that do not meet, the mean over their steps.
        second_hump_s: median of the smaller group of steps, where there are two.
        stalled_s: what stalled steps take beyond the hump, a mean over all steps of all workers.
        stalled_waiting_s: of it, what workers wait for others beyond what they do in steps that
            did not stall; not a number where nobody sees into a step.
    """

    hump_s: float
    second_hump_s: float | None
    stalled_s: float
    stalled_waiting_s: float


def stalls_of(parts: StepParts, rto_min_s: float = RTO_MIN_S) -> Stalls:
    """The humps and stalls of the steps that have a part inside a window.

    Workers that meet in every step share their humps, and a mean over workers counts a stall that
    holds up all of them once.  Others have a hump each.

    Args:
        rto_min_s: the least time after which TCP sends a lost segment again.
    """
    group = np.zeros_like(parts.worker) if parts.meets else parts.worker
    hump, width = np.zeros(len(group)), np.zeros(len(group))
    for each in np.unique(group):
        hump[group == each], width[group == each] = main_hump(parts.step_s[group == each])
    late = parts.step_s - hump
    stalled = late >= np.maximum(STALL_TIMEOUTS * rto_min_s, STALL_WIDTHS * width)
    waited = parts.waiting_s - np.median(parts.waiting_s[~stalled])
    hump_s = float(hump.mean())
    return Stalls(
        hump_s=hump_s,
        second_hump_s=second_hump(hump_s + late, hump_s),
        stalled_s=parts.mean(late * stalled),
        stalled_waiting_s=parts.mean(np.clip(waited, 0.0, late) * stalled),
    )


def main_hump(step_s: Floats) -> tuple[float, float]:
    """Middle and width of the shortest interval with a third of the steps."""
    ordered = np.sort(step_s)
    count = math.ceil(IN_HUMP * len(ordered))
    widths = ordered[count - 1 :] - ordered[: len(ordered) - count + 1]
    first = int(widths.argmin())
    return float(ordered[first] + widths[first] / 2), float(widths[first])


def second_hump(step_s: Floats, hump_s: float) -> float | None:
    """Median of the smaller of two groups of steps; None where they are one.

    Of all cuts that leave enough steps on either side, that whose gap is most beyond the least one
    counts.  Groups reach from their first to their last tenth: a few steps between them fill no
    gap.
    """
    ordered = np.sort(step_s)
    least = math.ceil(LEAST_SHARE * len(ordered))
    cuts = np.arange(least, len(ordered) - least + 1)
    low, early, begins = _tenths(ordered, np.zeros_like(cuts), cuts)
    ends, late, high = _tenths(ordered, cuts, np.full_like(cuts, len(ordered)))
    apart = late - early >= np.minimum(APART_S, APART_SHARE * early)
    gap = np.where(apart, ends - begins - LEAST_GAP * (begins - low + high - ends), 0.0)
    if not len(cuts) or gap.max() <= 0.0:
        return None
    widest = int(gap.argmax())
    return float(max(early[widest], late[widest], key=lambda each: abs(each - hump_s)))


def _tenths(ordered: Floats, first: Integers, end: Integers) -> tuple[Floats, Floats, Floats]:
    """First tenth, median and last tenth of groups of steps, by where these begin and end."""
    last = end - 1 - first
    tenth, median, ninth = (ordered[first + (share * last // 10)] for share in (1, 5, 9))
    return tenth, median, ninth
