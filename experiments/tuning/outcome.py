"""What a tuning has shown: on the screen, as a table of launches, as options to paste.  Pure.

Decides what is said of winners.  Which candidate has won is decided in `halving`.
"""

from __future__ import annotations

import csv
import io
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from analysis.figures.race import RaceLaunch
from experiments.tuning.halving import Moment, Outcome, Standing, mean_rate
from experiments.tuning.race import Race
from launchers.cli.types import size_text
from launchers.settings import option_of
from ps_allreduce.point.experiment import Experiment

#: Rows of the table on the screen.
ROWS = 8

#: What is tuned of strategies, in the order of options; sizes apart.
COUNTED = ("num_ps", "placement", "layout", "in_flight")
SIZED = ("split_bytes", "bytes_per_pack", "group_bytes", "cut_bytes")

COLUMNS = (
    *("side", "node_minutes", "round", "experiment_id", "title", "rate", "reason"),
    *("best_experiment_id", "best_rate"),
)

CURSE = (
    "Winners were chosen for their rates, which therefore look better than they are (winner's "
    "curse). Confirm them on fresh launches, in turn with the defaults: "
    "python -m experiments run-one with these options and those of model and hosts."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SideOutcome:
    """What the launches of a side came to.

    Attributes:
        name: of the side.
        unit: what rates count, per second.
        points: the candidates by their identity, the default first.
    """

    name: str
    unit: str
    points: Mapping[str, Experiment]
    standing: Standing

    @property
    def winner(self) -> Experiment | None:
        """The candidate that is ahead; None where none could be run."""
        best = self.standing.best
        return None if best is None else self.points[best]

    def at(self, spent_s: float) -> Moment | None:
        """The last launch before so many hosts times seconds were spent; None before the first."""
        before = [moment for moment in self.standing.moments if moment.spent_s <= spent_s]
        return before[-1] if before else None

    def outcomes(self, candidate: str) -> list[Outcome]:
        """The launches of a candidate."""
        moments = self.standing.moments
        return [moment.outcome for moment in moments if moment.candidate == candidate]

    @property
    def failures(self) -> Iterator[str]:
        """A sentence for each candidate that is out because it failed."""
        for moment in self.standing.moments:
            if moment.outcome.rate is None:
                title = self.points[moment.candidate].title
                yield f"Out: {title}: {moment.outcome.reason.rstrip('.')}."


def side_outcomes(race: Race, standings: Sequence[Standing]) -> list[SideOutcome]:
    """What came of each side."""
    return [
        SideOutcome(
            name=side[0].strategy.label,
            unit=f"{side[0].workload.unit.counted}/s",
            points={point.experiment_id: point for point in side},
            standing=standing,
        )
        for side, standing in zip(race.sides, standings, strict=True)
    ]


def render_progress(sides: Sequence[SideOutcome], share_s: float) -> str:
    """The best rates so far against node minutes, a row for each part of the share."""
    heads = [f"{side.name}, {side.unit}" for side in sides]
    lines = ["  ".join(["node minutes", *heads])]
    for row in range(1, ROWS + 1):
        spent_s = share_s * row / ROWS
        rates = [_rate_text(side.at(spent_s)) for side in sides]
        cells = [f"{rate:>{len(head)}}" for rate, head in zip(rates, heads, strict=True)]
        lines.append("  ".join([f"{spent_s / 60:>12.1f}", *cells]))
    return "\n".join(lines)


def _rate_text(moment: Moment | None) -> str:
    return "" if moment is None or moment.best_rate is None else f"{moment.best_rate:.1f}"


def render_winner(side: SideOutcome, sweep_dir: Path) -> str:
    """The winner of a side, its options to paste and its line for export."""
    winner = side.winner
    if winner is None:
        return f"{side.name}: no candidate could be run."
    folder = shlex.quote(str(sweep_dir))
    return "\n".join(
        [
            f"{side.name}: {winner.title}",
            f"  {_compared(side, winner)}",
            f"  {options_of(winner)}",
            f"  make export SETTING={winner.experiment_id} RESULTS={folder} INTO=my_training",
        ]
    )


def _compared(side: SideOutcome, winner: Experiment) -> str:
    """`26.4 rows/s (5 launches); default 21.0 rows/s (2 launches): ps_sync, ...`."""
    default = next(iter(side.points.values()))
    said = _mean_text(side, winner)
    if winner == default:
        return f"{said}: the default"
    return f"{said}; default {_mean_text(side, default)}: {default.title}"


def _mean_text(side: SideOutcome, point: Experiment) -> str:
    outcomes = side.outcomes(point.experiment_id)
    rate = mean_rate(outcomes)
    launches = f"({len(outcomes)} launch{'es' * (len(outcomes) != 1)})"
    return f"failed {launches}" if rate is None else f"{rate:.1f} {side.unit} {launches}"


def options_of(point: Experiment) -> str:
    """What `run-one` is told of a setting."""
    columns = point.columns()
    options = {"strategy": columns["strategy"], "num_workers": point.num_workers}
    understood = [name for name in (*COUNTED, *SIZED) if name in point.strategy.understands]
    for name in understood:
        value = columns.get(name)
        if value is not None:
            options[name] = size_text(int(str(value))) if name in SIZED else value
    options |= {name: columns[name] for name in ("cores_per_worker", "threads_per_worker")}
    return " ".join(f"{option_of(name)} {value}" for name, value in options.items())


def race_lines(sides: Sequence[SideOutcome]) -> list[tuple[str, list[RaceLaunch]]]:
    """What the figure shows of every side."""
    return [(side.name, [*_race_line(side.standing.moments)]) for side in sides]


def _race_line(moments: Sequence[Moment]) -> Iterator[RaceLaunch]:
    before = None
    for moment in moments:
        yield RaceLaunch(
            node_minutes=moment.spent_s / 60,
            rate=moment.outcome.rate,
            best_rate=moment.best_rate,
            overtakes=moment.best != before,
        )
        before = moment.best


def launch_table(sides: Sequence[SideOutcome]) -> str:
    """Every launch as CSV, side by side in the order of node minutes."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(COLUMNS)
    for side in sides:
        writer.writerows(_row(side, moment) for moment in side.standing.moments)
    return stream.getvalue()


def _row(side: SideOutcome, moment: Moment) -> tuple[object, ...]:
    return (
        side.name,
        round(moment.spent_s / 60, 4),
        moment.round,
        moment.candidate,
        side.points[moment.candidate].title,
        moment.outcome.rate,
        moment.outcome.reason,
        moment.best,
        moment.best_rate,
    )
