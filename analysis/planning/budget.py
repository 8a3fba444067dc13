"""How a sweep spends its time: the length of windows, and how many launches there are.

Decides both together: the window with which the main interval gets narrowest in the time there is.
`docs/decisions/0015-time-goes-to-the-main-comparison.md` has the formula.

Decides also what a pilot has shown of it: how the variance of a few launches is taken apart, that
the first worker's steps stand for the run, and that their neighbours are correlated as in an
autoregressive series of the first order.  Which runs a pilot makes is decided by the sweep.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from scipy.special import stdtrit

from analysis.data.load import load_steps
from ps_allreduce.errors import RecordFormatError
from ps_allreduce.point.layout import tasks_of
from ps_allreduce.record.records import RunRecord

#: Launches that differ by less do so by luck: a pilot has a handful.
LEAST_SPREAD = 0.01

#: Nothing is launched in less time.
LEAST_OVERHEAD_S = 0.1

#: Fewer steps tell nothing of their spread.
FEWEST = 6

#: Of few steps the estimate is rough; beyond this it would foretell no variation, or no end of it.
MOST_CORRELATED = 0.9


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchCost:
    """What a launch of a point with so many tasks takes.

    Attributes:
        overhead_s: beyond its window: start, first step, warm-up and end.
        step_s: a step of its window.
    """

    tasks: int
    overhead_s: float
    step_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PilotResult:
    """What is known of the launches of a model; standard deviations are of logarithms.

    Attributes:
        launch: of what is of one launch alone, however long its window.
        second: of what is left of the steps' own variation in a window of one second.
        costs: of points with few and many tasks; at least one.
    """

    launch: float
    second: float
    costs: tuple[LaunchCost, ...]

    @property
    def most_overhead_s(self) -> float:
        """Of the point that takes longest."""
        return max(cost.overhead_s for cost in self.costs)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepSpread:
    """Steps of the window.

    Attributes:
        step_s: their mean.
        spread: standard deviation of their logarithms, which is about a share of the mean.
        autocorrelation: of the logarithms, at lag 1.
    """

    step_s: float
    spread: float
    autocorrelation: float

    @property
    def variance_of_a_second(self) -> float:
        """Variance of the logarithm of a rate that is measured for one second.

        A mean of n steps has the variance spread^2/n times (1 + r)/(1 - r), with their
        autocorrelation r (Priestley, "Spectral Analysis and Time Series", 1981, section 5.3.2).
        """
        lag = min(max(self.autocorrelation, -MOST_CORRELATED), MOST_CORRELATED)
        return self.spread**2 * self.step_s * (1 + lag) / (1 - lag)


def pilot_of(launches: Mapping[Path, RunRecord]) -> PilotResult | None:
    """Take the variance of launches apart.

    The rates of a point vary by launch^2 + second^2/window.  The second part follows from the steps
    (`step_spread`), but is no more than what rates were seen to vary by; what is more
    than that is the launch's.

    Args:
        launches: records by their paths; at least two that measured of some point.

    Returns:
        None where that is not there.
    """
    steps = {path: spread for path in launches if (spread := step_spread(path)) is not None}
    measured = {path: record for path, record in launches.items() if path in steps}
    freedom, variance = _pooled(list(measured.values()))
    if not freedom:
        return None
    second = float(np.mean([spread.variance_of_a_second for spread in steps.values()]))
    of_windows = float(np.mean([_of_window(steps[p], measured[p]) for p in measured]))
    seen = min(1.0, variance / of_windows) if of_windows else 0.0
    return PilotResult(
        launch=max(LEAST_SPREAD, math.sqrt(max(0.0, variance - of_windows))),
        second=math.sqrt(second * seen),
        costs=tuple(_costs([(measured[path], steps[path].step_s) for path in measured])),
    )


def step_spread(run: str | Path) -> StepSpread | None:
    """Of a run, by the path of its record; None without raw timings or with too few steps."""
    try:
        table = load_steps(run)
    except RecordFormatError:
        return None
    steps = table.loc[table["in_window"] & (table["worker"] == 0), "step_s"].to_numpy(dtype=float)
    if len(steps) < FEWEST:
        return None
    logs = np.log(steps)
    return StepSpread(
        step_s=float(steps.mean()),
        spread=float(logs.std(ddof=1)),
        autocorrelation=_autocorrelation(logs),
    )


def _costs(launches: Sequence[tuple[RunRecord, float]]) -> Iterator[LaunchCost]:
    """The mean of each number of tasks."""
    counts = {len(tasks_of(record.experiment)) for record, _ in launches}
    for tasks in sorted(counts):
        alike = [each for each in launches if len(tasks_of(each[0].experiment)) == tasks]
        yield LaunchCost(
            tasks=tasks,
            overhead_s=float(np.mean([_overhead_s(record) for record, _ in alike])),
            step_s=float(np.mean([step_s for _, step_s in alike])),
        )


def _pooled(records: Sequence[RunRecord]) -> tuple[int, float]:
    """Degrees of freedom and variance of the logarithms of rates around their point's mean."""
    rates: dict[str, list[float]] = {}
    for record in records:
        if record.metrics is not None:
            rates.setdefault(record.experiment_id, []).append(record.metrics.examples_per_sec)
    freedom = sum(len(each) - 1 for each in rates.values())
    squares = sum(float(np.log(each).var()) * len(each) for each in rates.values())
    return freedom, squares / freedom if freedom else 0.0


def _of_window(spread: StepSpread, record: RunRecord) -> float:
    """Variance that the steps bring into the rate of this run's window."""
    return spread.variance_of_a_second / record.metrics.window_s if record.metrics else 0.0


def _overhead_s(record: RunRecord) -> float:
    """From the launch to the end of all tasks, without the measured steps."""
    phases = record.phases
    return max(LEAST_OVERHEAD_S, (phases.total_s or 0.0) - (phases.measured_s or 0.0))


def _autocorrelation(values: npt.NDArray[np.float64]) -> float:
    """At lag 1; 0 where nothing varies."""
    centred = values - values.mean()
    square = float(centred @ centred)
    return float(centred[1:] @ centred[:-1]) / square if square > 0.0 else 0.0


#: The windows to choose from, in seconds; each has so many steps at least.
WINDOWS_S = (1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0, 20.0)
FEWEST_STEPS = 8

#: More launches of a point are not made: others would gain more from the time.
MOST_LAUNCHES = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelPart:
    """What a model's part of a sweep wants.

    Attributes:
        points: tasks of each point that is launched as often as the profile says at least.
        main: tasks of each point that is launched as often as time allows.
    """

    pilot: PilotResult
    points: tuple[int, ...]
    main: tuple[int, ...]

    def seconds(self, tasks: Sequence[int], window_s: float) -> float:
        """What a launch of each of these points takes, by their numbers of tasks."""
        costs = sorted((cost.tasks, _launch_s(cost, window_s)) for cost in self.pilot.costs)
        numbers, times = zip(*costs, strict=True)
        return float(np.interp(tasks, numbers, times).sum())

    def half_width(self, window_s: float, launches: int) -> float:
        """Of the t-interval of a mean of so many launches, on the logarithm.

        Its variance is (launch^2 + second^2/window)/launches, that of two-stage sampling (Cochran,
        "Sampling Techniques", 3rd ed. 1977, section 10.3; for benchmarks Kalibera and Jones,
        "Rigorous Benchmarking in Reasonable Time", ISMM 2013).
        """
        variance = self.pilot.launch**2 + self.pilot.second**2 / window_s
        return float(stdtrit(launches - 1, 0.975)) * math.sqrt(variance / launches)


def _launch_s(cost: LaunchCost, window_s: float) -> float:
    return cost.overhead_s + max(window_s, FEWEST_STEPS * cost.step_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Spending:
    """What a budget is spent on.

    Attributes:
        window_s: of all launches.
        launches: of the points of the main comparison; all others have the fewest.
        expected_s: of all launches together.
    """

    window_s: float
    launches: int
    expected_s: float


def spend(parts: Sequence[ModelPart], fewest: int, budget_s: float) -> Spending:
    """The fewest launches of all points; what is left of the time goes to the main comparison.

    Args:
        parts: one for each model.
        fewest: launches of every point, also where time does not suffice; at least 2.
    """
    possible = [_with_window(parts, fewest, budget_s, window_s) for window_s in WINDOWS_S]
    within = [each for each in possible if each.expected_s <= budget_s]

    def widest(spending: Spending) -> float:
        return max(part.half_width(spending.window_s, spending.launches) for part in parts)

    return min(within, key=widest, default=possible[0])


def _with_window(
    parts: Sequence[ModelPart], fewest: int, budget_s: float, window_s: float
) -> Spending:
    base_s = fewest * sum(part.seconds(part.points, window_s) for part in parts)
    turn_s = sum(part.seconds(part.main, window_s) for part in parts)
    more = math.floor((budget_s - base_s) / turn_s)
    launches = max(fewest, min(fewest + more, MOST_LAUNCHES))
    expected_s = base_s + (launches - fewest) * turn_s
    return Spending(window_s=window_s, launches=launches, expected_s=expected_s)
