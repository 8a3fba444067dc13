"""A pilot, before a sweep that has a time budget: how long are windows, and how many launches?

Decides which points are launched first, and what is said of them.  What follows from their times is
decided in `analysis.planning`; the answers are kept with the sweep's other choices, so the same
command goes on with them.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console

from analysis.planning.budget import FEWEST_STEPS, WINDOWS_S, ModelPart, Spending, pilot_of, spend
from experiments.cli.requests import StudyRequest
from experiments.sweep.definition import LAUNCHES, WINDOW, Choices
from experiments.sweep.session import (
    RunListener,
    Session,
    Workplace,
    open_session,
    run_uninterrupted,
)
from experiments.sweep.sweep import Sweep
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.layout import tasks_of
from ps_allreduce.point.sides import main_points
from ps_allreduce.record.choices import PILOT
from ps_allreduce.record.files import RunFiles
from ps_allreduce.record.records import RunRecord

#: How often each of its points is launched.
LAUNCHES_EACH = 2

#: Length of its windows: long enough for the variation of steps.
WINDOW_S = WINDOWS_S[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pilot:
    """Finds out what a sweep with a budget needs to know.

    Attributes:
        place: where runs of the sweep are made; those of a pilot go into a folder beside it.
        choices: takes the answers, and has those of earlier calls.
        begun: when the budget began to be spent, on the monotonic clock.
    """

    request: StudyRequest
    place: Workplace
    choices: Choices
    console: Console
    begun: float

    def take(self, sweep: Sweep) -> bool:
        """Launch a few points of every model, if the profile asks for it and nobody did before.

        Returns:
            Whether something was chosen.

        Raises:
            KeyboardInterrupt: somebody interrupted it.
        """
        budget_s = sweep.profile.budget_s
        known = self.choices.answer(LAUNCHES, int) is not None
        if budget_s is None or known or not sweep.profile.pilot:
            return False
        parts = self._parts(sweep)
        fewest = sweep.profile.repetitions
        if parts is None:
            self.choices.decide(LAUNCHES, int, lambda: fewest)
            self.console.print(
                "Runs of the pilot failed, so nothing is known of launches: every point is "
                f"launched {fewest} times, in windows of the profile {sweep.profile.name}."
            )
            return True
        spent_s = time.monotonic() - self.begun
        spending = spend(list(parts.values()), fewest, budget_s - spent_s)
        self.choices.decide(WINDOW, float, lambda: spending.window_s)
        self.choices.decide(LAUNCHES, int, lambda: spending.launches)
        self.console.print(_told(parts, spending, sweep))
        return True

    def _parts(self, sweep: Sweep) -> dict[str, ModelPart] | None:
        """What every model wants of the time; None where runs came to nothing."""
        main = main_points(sweep.points)
        models = dict.fromkeys(point.workload.model.name for point in main)
        pairs = {model: _pair([p for p in main if _is_of(p, model)]) for model in models}
        launches = self._launch(sweep, pairs)
        parts = {}
        for model, made in launches.items():
            pilot = pilot_of(made)
            if pilot is None:
                return None
            parts[model] = ModelPart(
                pilot=pilot,
                points=_tasks([point for point in sweep.points if _is_of(point, model)]),
                main=_tasks([point for point in main if _is_of(point, model)]),
            )
        return parts

    def _launch(
        self, sweep: Sweep, pairs: Mapping[str, Sequence[Experiment]]
    ) -> dict[str, dict[Path, RunRecord]]:
        """Launch each model's base once and its points in turn; the records by their paths."""
        queues = {
            model: [*_bases(sweep.points, model), *(list(pair) * LAUNCHES_EACH)]
            for model, pair in pairs.items()
        }
        total = sum(len(queue) for queue in queues.values())
        place = replace(
            self.place,
            sweep_dir=self.request.launcher.results / PILOT,
            listener=_Count(self.place.listener, total),
        )
        self.console.print(
            f"A pilot of {total} runs chooses the length of windows and the number of launches."
        )
        for pair in pairs.values():
            place.launcher.prepare(pair[0].workload)
        with open_session(place, PILOT, sweep.profile) as session:
            return {
                model: dict(_launched(session, point) for point in queue)
                for model, queue in queues.items()
            }


class _Count(RunListener):
    """Shows how far a pilot is, without a line for each of its runs."""

    def __init__(self, listener: RunListener, total: int) -> None:
        self._listener = listener
        self._total, self._done = total, 0

    def finish(self, record: RunRecord, log_tail: str) -> None:
        """Move the bar on."""
        self._done += 1
        self._listener.prepare("pilot", self._done, self._total)


def _is_of(point: Experiment, model: str) -> bool:
    return point.workload.model.name == model


def _tasks(points: Sequence[Experiment]) -> tuple[int, ...]:
    return tuple(len(tasks_of(point)) for point in points)


def _bases(points: Sequence[Experiment], model: str) -> list[Experiment]:
    """The single worker: what the launch of one task takes."""
    alone = [point for point in points if len(tasks_of(point)) == 1 and _is_of(point, model)]
    return alone[:1]


def _pair(points: Sequence[Experiment]) -> list[Experiment]:
    """Two points of one model, with few and many tasks if there are such: the first and last."""
    return list(dict.fromkeys((points[0], points[-1])))


def _launched(session: Session, point: Experiment) -> tuple[Path, RunRecord]:
    profile = session.profile.measurement
    window = replace(profile, measured_s=WINDOW_S, measured_steps=FEWEST_STEPS)
    record = run_uninterrupted(session, replace(point, measurement=window))
    files = RunFiles.of(
        session.place.sweep_dir, record.experiment_id, record.repetition, record.attempt
    )
    return files.record, record


def _told(parts: Mapping[str, ModelPart], spending: Spending, sweep: Sweep) -> str:
    """What was found, and what follows."""
    found = [
        f"launches of {model} spread by {part.pilot.launch:.1%} and take "
        f"up to {part.pilot.most_overhead_s:.1f} s beside their windows"
        for model, part in parts.items()
    ]
    fewest, minutes = sweep.profile.repetitions, math.ceil(spending.expected_s / 60)
    rest = f", those of the main comparison {spending.launches} times"
    told = (
        f"windows of {spending.window_s:g} s, every point launched {fewest} times"
        f"{rest if spending.launches > fewest else ''}"
    )
    sentence = f"{'; '.join(found)}: {told}, in about {minutes} min."
    return sentence[0].upper() + sentence[1:] + _too_little(spending, sweep)


def _too_little(spending: Spending, sweep: Sweep) -> str:
    budget_s = sweep.profile.budget_s
    if budget_s is None or spending.expected_s <= budget_s:
        return ""
    minutes = round(budget_s / 60, 1)
    return (
        f" That is more than the {minutes:g} min of the profile {sweep.profile.name}: "
        f"{len(sweep.points)} points need it. --repetitions 1 takes less and allows no verdict."
    )
