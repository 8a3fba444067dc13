"""The command `tune`, and a tuning before a sweep: from a request to the best setting of each side.

Decides what comes before the first launch, that both sides are launched in turn until each has used
its share, which files are left, and what an interruption leaves.  Which candidates there are, which
is launched next and what is said of winners is decided in the other modules of this room.

Before a sweep, part of its time, equal for both sides, finds their settings.  The sweep measures
the winners beside the defaults, on launches of its own, which took no part in the choice.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from rich.console import Console

from analysis.figures.race import plot_race
from analysis.figures.style import save_figure
from analysis.wording import count_text, slug
from experiments import surroundings
from experiments.cli.links import FirstLook
from experiments.cli.plan import plan_sweep
from experiments.cli.requests import StudyRequest, SweepRequest
from experiments.cli.settle import settled
from experiments.cli.sweep_command import INTERRUPTED, NO_TIME, known_choices
from experiments.studies.defaults import OwnTraining, default_models
from experiments.sweep.definition import Choices, save_definition
from experiments.sweep.execute import Stop, has_time, look_ahead
from experiments.sweep.history import kept_records
from experiments.sweep.progress import plain_console
from experiments.sweep.session import Session, Workplace, open_session, run_once
from experiments.sweep.sweep import PROFILES, QUICK, PlannedRun, Sweep
from experiments.tuning import candidates
from experiments.tuning.halving import Launches, LaunchOutcome, SideStanding, next_side, standings
from experiments.tuning.outcome import (
    CURSE,
    SideOutcome,
    launch_table,
    render_progress,
    render_side,
)
from launchers.sites.kinds import site_kind
from ps_allreduce.errors import at_least
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.layout import num_hosts
from ps_allreduce.point.sides import ALLREDUCE, PS_SYNC
from ps_allreduce.record.choices import TUNE
from ps_allreduce.record.files import write_atomically
from ps_allreduce.record.records import RunRecord, Status
from ps_allreduce.terminal import echo

#: What a launch takes, until the first has told; seconds.
TYPICAL_S = 8.0

#: No launch is free, even where a clock was set back meanwhile; seconds.
LEAST_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Race:
    """What is tried, and for how long.

    Attributes:
        sides: the candidates of each side; all take equally many hosts.
        minutes: of all launches of both sides.
    """

    sides: tuple[tuple[Experiment, ...], ...]
    minutes: float

    @property
    def hosts(self) -> int:
        """Of every launch."""
        return num_hosts(self.sides[0][0])

    @property
    def hosts_text(self) -> str:
        """`1 host`, `2 hosts`."""
        return count_text(self.hosts, "host")

    @property
    def share_s(self) -> float:
        """Hosts times seconds of each side."""
        return self.minutes * 60 * self.hosts / len(self.sides)

    @property
    def points(self) -> Mapping[str, Experiment]:
        """All candidates by their identity."""
        return {point.experiment_id: point for side in self.sides for point in side}

    def standings(self, launches: Launches) -> list[SideStanding]:
        """How far each side has come."""
        sides = [[point.experiment_id for point in side] for side in self.sides]
        return standings(sides, self.share_s, launches)


def run_race(
    race: Race, session: Session, kept: Sequence[RunRecord]
) -> tuple[list[SideStanding], Stop | None]:
    """Make the launches that are missing.

    Args:
        kept: records of earlier calls.

    Returns:
        How far each side has come, and why that is not to its end, None if it is.
    """
    place, points = session.place, race.points
    place.listener.begin(_likely(race, race.standings(launches_of(kept))), len(kept))
    while True:
        launches = launches_of([*kept, *session.made])
        sides = race.standings(launches)
        place.listener.expect(_likely(race, sides))
        candidate = _next(sides)
        if candidate is None:
            return sides, None
        if not has_time(place.launcher, session.profile):
            return sides, Stop.NO_TIME
        repetition = len(launches.get(candidate, ()))
        run = PlannedRun(experiment=points[candidate], repetition=repetition)
        if run_once(session, run).status is Status.INTERRUPTED:
            return sides, Stop.INTERRUPTED


def _next(sides: Sequence[SideStanding]) -> str | None:
    number = next_side(sides)
    return None if number is None else sides[number].next


def _likely(race: Race, sides: Sequence[SideStanding]) -> int:
    """How many launches are to come, if they take as long as those before."""
    spent_s = sum(side.spent_s for side in sides)
    made = sum(len(side.moments) for side in sides)
    each_s = spent_s / made if made else TYPICAL_S * race.hosts
    going = [side for side in sides if side.next is not None]
    return math.ceil(sum(max(0.0, race.share_s - side.spent_s) for side in going) / each_s)


def launches_of(records: Sequence[RunRecord]) -> dict[str, list[LaunchOutcome]]:
    """What the launches of every candidate came to, in their order.

    One that was interrupted says nothing about its candidate; it is made again and not counted.
    """
    launches: dict[str, list[LaunchOutcome]] = {}
    for record in records:
        if record.status is not Status.INTERRUPTED:
            launches.setdefault(record.experiment_id, []).append(_outcome_of(record))
    return launches


def _outcome_of(record: RunRecord) -> LaunchOutcome:
    began, ended = map(datetime.fromisoformat, (record.started_at, record.finished_at))
    # The first launch on a host waits for its fork server: that is no cost of its setting.
    bring_up_s = record.phases.bring_up_s or 0.0
    seconds = max(LEAST_S, (ended - began).total_seconds() - bring_up_s)
    node_s = seconds * num_hosts(record.experiment)
    if record.status is Status.OK and record.metrics is not None:
        return LaunchOutcome(rate=record.metrics.examples_per_sec, node_s=node_s)
    return LaunchOutcome(rate=None, node_s=node_s, reason=f"{record.status}, {record.reason}")


#: The name of the files that are left: all launches, and their figure.
FILES = "tuning-race"

PROFILE = replace(PROFILES[QUICK].without_budget(1), name=TUNE)


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
    request, console = settled(request), plain_console()
    surroundings.tell_of_others(request.launcher, console)
    with surroundings.workplace(request.launcher, request.sweep_dir, console) as place:
        race, sides, stop = _raced(request, place, minutes, console)
    _leave(request, sides, race)
    return sides, _status(stop)


def _raced(
    request: StudyRequest, place: Workplace, minutes: float, console: Console
) -> tuple[Race, list[SideOutcome], Stop | None]:
    """Make the launches that are missing; what came of each side, and why it is not all."""
    choices = known_choices(request, place, console)
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
    reduced, served = (tuple(filter(side.holds, sweep.points)) for side in (ALLREDUCE, PS_SYNC))
    return Race(sides=(reduced, served), minutes=minutes)


def _leave(request: StudyRequest, sides: Sequence[SideOutcome], race: Race) -> None:
    """Write the files, and tell what they show."""
    echo(render_progress(sides, race.share_s))
    for side in sides:
        echo("\n".join(render_side(side, request.sweep_dir)))
    if any(side.winner for side in sides):
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


#: Of the time of the sweep.
SHARE = 0.2


def tuned_first(request: StudyRequest) -> StudyRequest:
    """The request with the winners of each of its models, and with what is left of its time.

    The same request where the study or its profile has no tuning, nothing is to be run here, or the
    sweep has no time to share.  Ends the program where the tuning does not come to its end.
    """
    budget_s = request.sweep.chosen_profile.budget_s
    if budget_s is None or not _is_wanted(request):
        return request
    name = request.workload.model
    models = default_models(request.sweep.profile) if name is None else (name,)
    winners = []
    for model in models:
        own = replace(request, workload=replace(request.workload, model=model))
        tuning = _tuning(replace(own, default_model=name is None))
        sides, status = find_winners(tuning, SHARE * budget_s / 60 / len(models))
        if status:
            sys.exit(status)
        winners += [side.winner for side in sides if side.winner is not None]
    left = replace(request.sweep, budget_s=(1 - SHARE) * budget_s)
    return replace(request, sweep=left, tuned=tuple(winners))


def _is_wanted(request: StudyRequest) -> bool:
    """The sweep is made here and now, on hosts of one kind, and no setting of it is stated.

    Nor is it made with several spreads, of which a tuning has one.
    """
    sweep = request.sweep
    stated = request.settings.stated or sweep.allreduce_threads or sweep.ps_threads
    scheduler = site_kind(request.launcher.launcher).scheduler
    here = scheduler is None or scheduler.inside_job()
    several = request.spread.is_axis or request.launcher.ps_hosts
    return here and not (stated or sweep.dry_run or several)


def _tuning(request: StudyRequest) -> StudyRequest:
    """With the hosts, workers and cores of the sweep: those of its profile where none is stated."""
    stated = request.sweep.workers
    model = request.workload.model
    name = model.model.name if isinstance(model, OwnTraining) else model
    return StudyRequest(
        name=f"{TUNE}/{slug(name or '')}",
        study=candidates.STUDY,
        launcher=request.launcher,
        sweep=SweepRequest(
            profile=replace(PROFILE, name=request.sweep.profile.name),
            workers=stated and stated[-1:],
            cores_per_worker=request.sweep.cores_per_worker,
        ),
        workload=request.workload,
        spread=request.spread,
        default_model=request.default_model,
    )
