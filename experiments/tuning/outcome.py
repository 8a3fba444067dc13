"""What a tuning has shown: on the screen, as a table of launches, as options to paste.  Pure.

Decides which candidate wins: the default, unless the one that is ahead is clearly faster; and what
is said of it.  Which candidates are launched, and which one is ahead, is decided in `halving`.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from analysis.stats.decision import Contest, Decision, Outcome, decide
from analysis.wording import count_text, launches_text, outcome_text, ratio_text
from experiments.tuning.halving import LaunchOutcome, Moment, SideStanding, mean_rate
from launchers.cli.types import size_text
from launchers.settings import option_of
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.models.trained import OwnModel
from ps_allreduce.point.network import render_rate
from ps_allreduce.point.strategies import default_of
from ps_allreduce.point.strategies.base import value_of
from ps_allreduce.point.strategies.stated import DECLARATIONS
from ps_allreduce.point.workload import Precision, Scaling

#: Rows of the table on the screen.
ROWS = 8

#: What is tuned of strategies, in the order of options.
TUNED = (
    *("num_ps", "placement", "layout", "split_bytes"),
    *("bytes_per_pack", "group_bytes", "cut_bytes", "in_flight"),
)

CURSE = (
    "Rates of winners were chosen for being high, so they look better than they are (winner's "
    "curse)."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SideOutcome:
    """What the launches of a side came to.

    Attributes:
        points: the candidates by their identity, the default first.
    """

    points: Mapping[str, Experiment]
    standing: SideStanding

    @property
    def default(self) -> Experiment:
        """The candidate without any change."""
        return next(iter(self.points.values()))

    @property
    def winner(self) -> Experiment | None:
        """The candidate that is ahead and clearly faster than the default.

        Else it is the default; None where no candidate could be run.
        """
        best = self.standing.best
        if best is None:
            return None
        is_better = self.default_failed or self.over_default(best).outcome is Outcome.FASTER
        return self.points[best] if is_better else self.default

    @property
    def default_failed(self) -> bool:
        """No launch of the default ended well."""
        return mean_rate(self.outcomes(self.default)) is None

    def over_default(self, candidate: str) -> Decision:
        """A candidate over the default, in the launches of the last round, pass by pass."""
        default = self._last_rates(self.default.experiment_id)
        return decide([Contest.of([self._last_rates(candidate)], [default])])[0]

    def _last_rates(self, candidate: str) -> pd.Series:
        last = [each for each in self.standing.moments if each.is_last]
        rates = [each.outcome.rate for each in last if each.candidate == candidate]
        return pd.Series([rate for rate in rates if rate is not None], dtype=float)

    @property
    def name(self) -> str:
        """Of the side."""
        return self.default.strategy.label

    @property
    def unit(self) -> str:
        """What rates count, per second."""
        return self.default.workload.unit.counted

    def outcomes(self, point: Experiment) -> list[LaunchOutcome]:
        """The launches of a candidate."""
        moments = self.standing.moments
        return [each.outcome for each in moments if each.candidate == point.experiment_id]

    def best_rate(self, spent_s: float) -> str:
        """The best so far when so many hosts times seconds were spent; empty without any."""
        before = [each.best_rate for each in self.standing.moments if each.spent_s <= spent_s]
        return f"{before[-1]:.1f}" if before and before[-1] is not None else ""


def render_progress(sides: Sequence[SideOutcome], share_s: float) -> str:
    """The best rates so far against node minutes, a row for each part of the share."""
    heads = [f"{side.name}, {side.unit}/s" for side in sides]
    lines = ["  ".join(["node minutes", *heads])]
    for row in range(1, ROWS + 1):
        spent_s = share_s * row / ROWS
        rates = zip(sides, heads, strict=True)
        cells = [f"{side.best_rate(spent_s):>{len(head)}}" for side, head in rates]
        lines.append("  ".join([f"{spent_s / 60:>12.2f}", *cells]))
    return "\n".join(lines)


def render_side(side: SideOutcome, sweep_dir: Path) -> Iterator[str]:
    """What failed; the winner, its options to paste and its line for export."""
    for moment in side.standing.moments:
        if moment.outcome.rate is None:
            title = side.points[moment.candidate].title
            yield f"Failed: {title}: {moment.outcome.reason.rstrip('.')}."
    winner = side.winner
    if winner is None:
        yield f"{side.name}: no candidate could be run."
        return
    yield f"{side.name}: {winner.title}"
    yield f"  {_compared(side, winner)}"
    yield f"  {options_of(winner)}"
    folder = shlex.quote(str(sweep_dir))
    yield f"  make export SETTING={winner.experiment_id} RESULTS={folder} INTO=my_training"


def _compared(side: SideOutcome, winner: Experiment) -> str:
    """The rate of the winner; and how the default and the best of the others compare."""
    launched, best = side.outcomes(winner), side.standing.best
    told = f"{mean_rate(launched) or 0.0:.1f} {side.unit}/s ({count_text(len(launched), 'launch')})"
    if side.default_failed or best is None:
        return f"{told}; the default failed"
    if best == side.default.experiment_id:
        return f"{told}: the default; no other candidate was shown to be faster"
    decision = side.over_default(best)
    over = f"{ratio_text(*decision.ends)} of the default"
    passes = f"in the last round ({launches_text(decision)})"
    if winner != side.default:
        return f"{told}; {over} {passes}"
    said = f"{side.points[best].title} is not decided to be faster"
    return f"{told}: the default; {said}: {over} {passes}, {outcome_text(decision)}"


def options_of(point: Experiment) -> str:
    """What `run-one` is told of a setting, of its workload and of emulated hosts.

    What else was stated of input or of hosts has to be stated again.
    """
    columns, understood = point.columns(), point.strategy.understands()
    tuned = [name for name in TUNED if name in understood]
    names = ("strategy", "num_workers", *tuned, "cores_per_worker", "threads_per_worker")
    values = {name: columns.get(name) for name in names}
    others = [name for name in DECLARATIONS if name in understood and name not in TUNED]
    stated = {name: value_of(name, point.strategy) for name in others}
    values |= {name: value for name, value in stated.items() if value != default_of(name)}
    settings = [_option(name, value) for name, value in values.items() if value is not None]
    return " ".join([*settings, *_place_words(point), *_workload_words(point)])


def _option(name: str, value: Any) -> str:
    if value is True:
        return option_of(name)
    return f"{option_of(name)} {size_text(int(value)) if 'bytes' in name else value}"


def _place_words(point: Experiment) -> list[str]:
    words, network = ["--launcher", point.launcher], point.network
    if network is not None:
        words += ["--hosts", str(network.num_hosts)]
        if network.bits_per_s is not None:
            words += ["--bandwidth", render_rate(network.bits_per_s)]
    return words


def _workload_words(point: Experiment) -> list[str]:
    """The model, and what is not at its default."""
    load = point.workload
    words = ["--model", shlex.quote(load.model.name)]
    if isinstance(load.model, OwnModel):
        words += [f"--model-arg {shlex.quote(each)}" for each in load.model.arguments]
    words += ["--batch-per-worker", str(load.batch_per_worker)]
    if load.accumulation > 1:
        words += ["--accumulation", str(load.accumulation)]
    if load.scaling is not Scaling.WEAK:
        words += ["--scaling", str(load.scaling)]
    if load.precision is not Precision.FLOAT32:
        words += ["--precision", str(load.precision)]
    columns = load.columns()
    if load.emulated is not None:
        words += ["--emulate", f"{load.emulated.forward_s:g},{load.emulated.backward_s:g}"]
        stated = {"--worker-factors": "emulated_factors", "--jitter": "emulated_jitter"}
        words += [f"{own} {columns[name]}" for own, name in stated.items() if columns[name]]
    return words


def launch_table(sides: Sequence[SideOutcome]) -> pd.DataFrame:
    """A row for every launch, side after side."""
    rows = [_row(side, moment) for side in sides for moment in side.standing.moments]
    return pd.DataFrame(rows)


def _row(side: SideOutcome, moment: Moment) -> dict[str, object]:
    return {
        "side": side.name,
        "node_minutes": round(moment.spent_s / 60, 4),
        "round": moment.round,
        "experiment_id": moment.candidate,
        "title": side.points[moment.candidate].title,
        "rate": moment.outcome.rate,
        "reason": moment.outcome.reason,
        "best_experiment_id": moment.best,
        "best_rate": moment.best_rate,
    }
