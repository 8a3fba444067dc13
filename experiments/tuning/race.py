"""The launches of a tuning: both sides in turn, until each has used its share.

Decides what a record tells of a launch, and what an interruption leaves.  Which launch comes next
is decided in `halving`, how one is made in `sweep.session`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from experiments.sweep.execute import Stop, has_time
from experiments.sweep.session import Session, run_once
from experiments.sweep.sweep import PlannedRun
from experiments.tuning.halving import Launches, LaunchOutcome, SideStanding, next_side, standings
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.layout import num_hosts
from ps_allreduce.record.records import RunRecord, Status

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
        return f"{self.hosts} host{'s' * (self.hosts > 1)}"

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
