"""The command `tune`: from a request to the best setting of each side.

Decides what comes before the first launch, and which files are left.  Which candidates there are,
which is launched next and what is said of winners is decided in the other modules of this room.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import click
from rich.console import Console

from analysis.figures.race import plot_race
from analysis.figures.style import save_figure
from experiments import surroundings
from experiments.cli.links import FirstLook
from experiments.cli.plan import plan_sweep
from experiments.cli.requests import StudyRequest
from experiments.cli.sweep_command import INTERRUPTED, NO_TIME
from experiments.models.settle_model import settle_model
from experiments.sweep.definition import Choices, read_choices, save_definition
from experiments.sweep.execute import Stop, look_ahead
from experiments.sweep.progress import SweepProgress, plain_console
from experiments.sweep.session import Workplace, open_session
from experiments.sweep.sweep import PROFILES, QUICK, Sweep
from experiments.sweep.writable import check_writable
from experiments.tuning.halving import Standing
from experiments.tuning.outcome import (
    CURSE,
    SideOutcome,
    launch_table,
    race_lines,
    render_progress,
    render_winner,
    side_outcomes,
)
from experiments.tuning.race import Race, kept_records, run_race
from ps_allreduce.errors import at_least
from ps_allreduce.record.files import write_atomically

#: The file of all launches, and the name of the figure.
TABLE, FIGURE = "tuning-race.csv", "tuning-race"

PROFILE = replace(PROFILES[QUICK].without_budget(1), name="tune")


def run_tuning(request: StudyRequest, minutes: float) -> int:
    """Find the best setting of each side, and show it; return the exit status.

    Args:
        minutes: of all launches together.

    Raises:
        UserError: it cannot be run here.
        LaunchError: the host has a fault that does not pass.
    """
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
        race, standings, stop = _raced(request, place, minutes, console)
    return _show(request, side_outcomes(race, standings), race, stop)


def _raced(
    request: StudyRequest, place: Workplace, minutes: float, console: Console
) -> tuple[Race, list[Standing], Stop | None]:
    choices = read_choices(place.sweep_dir, request.identity, place.block)
    sweep = _planned(request, place, choices, console)
    race = race_of(sweep, minutes)
    console.print(
        f"{len(race.sides[0])} and {len(race.sides[1])} candidates; each side has "
        f"{race.share_s / 60:.1f} node minutes ({race.hosts} hosts)."
    )
    with open_session(place, request.name, PROFILE) as session:
        kept = kept_records(place.sweep_dir, place.block, race)
        place.listener.begin(0, len(kept))
        for prepared in {point.workload for point in sweep.points}:
            place.launcher.prepare(prepared)
        save_definition(sweep, choices, place.sweep_dir)
        return race, *run_race(race, session, kept)


def _planned(request: StudyRequest, place: Workplace, choices: Choices, console: Console) -> Sweep:
    """The candidates, on links of a rate that was stated or is chosen now."""
    launcher = place.launcher
    sweep = plan_sweep(request, launcher.capacity(), launcher.describe, choices, console)
    look_ahead(sweep.runs(), place)
    look = FirstLook(request=request, place=place, choices=choices, console=console)
    if look.take(sweep.points):
        return plan_sweep(request, launcher.capacity(), launcher.describe, choices, console)
    return sweep


def race_of(sweep: Sweep, minutes: float) -> Race:
    """The sides among the points of a sweep."""
    reduced = tuple(point for point in sweep.points if point.strategy.uses_collective)
    served = tuple(point for point in sweep.points if point.strategy.uses_servers)
    return Race(sides=(reduced, served), minutes=minutes)


def _show(
    request: StudyRequest, sides: Sequence[SideOutcome], race: Race, stop: Stop | None
) -> int:
    folder = request.sweep_dir
    write_atomically(folder / TABLE, launch_table(sides).encode())
    default = race.sides[0][0]
    title = f"{default.workload.model.name}, {race.hosts} hosts"
    figure = save_figure(plot_race(title, sides[0].unit, race_lines(sides)), folder, FIGURE)
    click.echo(render_progress(sides, race.share_s))
    for side in sides:
        for sentence in side.failures:
            click.echo(sentence)
        click.echo(render_winner(side, folder))
    click.echo(CURSE)
    click.echo(f"Every launch: {folder / TABLE}, drawn: {figure['png']}")
    if stop is Stop.INTERRUPTED:
        click.echo("Interrupted. The same command goes on.", err=True)
        return INTERRUPTED
    if stop is Stop.NO_TIME:
        click.echo(NO_TIME, err=True)
    return 0 if stop is None and all(side.winner for side in sides) else 1
