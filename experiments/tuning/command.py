"""The command `tune`: from a request to the best setting of each side.

Decides what comes before the first launch, and which files are left.  Which candidates there are,
which is launched next and what is said of winners is decided in the other modules of this room.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rich.console import Console

from analysis.figures.race import plot_race
from analysis.figures.style import save_figure
from experiments import surroundings
from experiments.cli.commands.sweep_command import INTERRUPTED, NO_TIME
from experiments.cli.links import FirstLook
from experiments.cli.plan import plan_sweep
from experiments.cli.requests import StudyRequest
from experiments.models.settle_model import settle_model
from experiments.sweep.definition import Choices, read_choices, save_definition
from experiments.sweep.execute import Stop, look_ahead
from experiments.sweep.history import kept_records
from experiments.sweep.progress import SweepProgress, plain_console
from experiments.sweep.session import Workplace, open_session
from experiments.sweep.sweep import PROFILES, QUICK, Sweep
from experiments.sweep.writable import check_writable
from experiments.tuning.outcome import (
    CURSE,
    SideOutcome,
    launch_table,
    render_progress,
    render_side,
)
from experiments.tuning.race import Race, run_race
from ps_allreduce.errors import at_least
from ps_allreduce.point.strategies.base import StrategySide
from ps_allreduce.record.files import write_atomically
from ps_allreduce.terminal import echo

#: The name of the files that are left: all launches, and their figure.
FILES = "tuning-race"

PROFILE = replace(PROFILES[QUICK].without_budget(1), name="tune")


def run_tuning(request: StudyRequest, minutes: float) -> int:
    """Find the best setting of each side, and show it; return the exit status.

    Args:
        minutes: of all launches together.

    Raises:
        UserError: it cannot be run here.
        LaunchError: the host has a fault that does not pass.
    """
    sides, status = find_winners(request, minutes)
    return status or int(any(side.winner is None for side in sides))


def find_winners(request: StudyRequest, minutes: float) -> tuple[list[SideOutcome], int]:
    """What came of each side, when it is shown; and the exit status of what is not to its end."""
    at_least(1, minutes=minutes)
    check_writable(request.sweep_dir)
    console = plain_console()
    workload = settle_model(request.workload, request.launcher.results, console)
    request = replace(request, workload=workload)
    launcher = surroundings.launcher_of(request.launcher)
    with launcher, SweepProgress(console) as progress:
        place = Workplace(
            launcher=launcher,
            sweep_dir=request.sweep_dir,
            commit=surroundings.source_state(),
            listener=progress,
        )
        race, sides, stop = _raced(request, place, minutes, console)
    _leave(request, sides, race)
    return sides, _status(stop)


def _raced(
    request: StudyRequest, place: Workplace, minutes: float, console: Console
) -> tuple[Race, list[SideOutcome], Stop | None]:
    """Make the launches that are missing; what came of each side, and why it is not all."""
    choices = read_choices(place.sweep_dir, request.identity, place.block)
    sweep = _planned(request, place, choices, console)
    race = _race_of(sweep, minutes)
    console.print(
        f"Each side has {race.share_s / 60:.1f} node minutes ({race.hosts_text}), and at most "
        f"{min(map(len, race.sides))} candidates."
    )
    with open_session(place, request.name, PROFILE) as session:
        kept = kept_records(place.sweep_dir, place.block, race.points)
        place.launcher.prepare(sweep.points[0].workload)
        save_definition(sweep, choices, place.sweep_dir)
        standings, stop = run_race(race, session, kept)
    sides = [
        SideOutcome(points={point.experiment_id: point for point in side}, standing=standing)
        for side, standing in zip(race.sides, standings, strict=True)
    ]
    return race, sides, stop


def _planned(request: StudyRequest, place: Workplace, choices: Choices, console: Console) -> Sweep:
    """The candidates, on links of a rate that was stated or is chosen now."""
    launcher = place.launcher
    sweep = plan_sweep(request, launcher.capacity(), launcher.describe, choices, console)
    look_ahead(sweep.runs(), place)
    look = FirstLook(request=request, place=place, choices=choices, console=console)
    if look.take(sweep.points):
        return plan_sweep(request, launcher.capacity(), launcher.describe, choices, console)
    return sweep


def _race_of(sweep: Sweep, minutes: float) -> Race:
    reduced = tuple(
        point for point in sweep.points if point.strategy.side is StrategySide.ALL_REDUCE
    )
    served = tuple(point for point in sweep.points if point.strategy.side is StrategySide.SERVERS)
    return Race(sides=(reduced, served), minutes=minutes)


def _leave(request: StudyRequest, sides: Sequence[SideOutcome], race: Race) -> None:
    """Write the files, and tell what they show."""
    echo(render_progress(sides, race.share_s))
    for side in sides:
        echo("\n".join(render_side(side, request.sweep_dir)))
    echo(CURSE)
    table = launch_table(sides)
    if len(table):
        path = request.sweep_dir / f"{FILES}.csv"
        write_atomically(path, table.to_csv(index=False).encode())
        title = f"{sides[0].default.workload.model.name}, {race.hosts_text}"
        saved = save_figure(plot_race(table, title, sides[0].unit), request.sweep_dir, FILES)
        echo(f"Every launch: {path}, drawn: {saved['png']}")


def _status(stop: Stop | None) -> int:
    """The exit status of what ended early; says how it goes on."""
    if stop is None:
        return 0
    interrupted = stop is Stop.INTERRUPTED
    sentence = "Interrupted. The same command goes on where it stopped." if interrupted else NO_TIME
    echo(sentence, err=True)
    return INTERRUPTED if interrupted else 1
