"""Plant causes in launches, and see whether the explanation finds them and keeps its promises.

Axes: side, cause (slow worker, hot server, slow input, slow link, busy cores, shallow port, random
loss), share of a step.

Method: a seed draws what is planted in each launch, on emulated hosts with an emulated accelerator.
Launches without each cause come before and after it in the same turn.  The latest sound launches
of a side say how long a step is, and so how much of a cause makes it longer by a share.  A launch
from which others took much of the processors is made again.  What is found is judged in
`experiments.suite.found_causes`.

Cost: 60 launches with causes take about 220 launches of twelve seconds.

It should show the right cause first in at least 54 of 60 launches, and none in sound ones.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from experiments import surroundings
from experiments.suite.found_causes import (
    FILE,
    FOLDER,
    Plant,
    PlantedTurn,
    judge,
    read_lines,
    render_found,
    runs_table,
    write_lines,
)
from experiments.suite.planted_points import (
    MEASUREMENT,
    NETWORK,
    SIDES,
    Draw,
    SoundStep,
    burners,
    draws,
    planted_point,
    sound_point,
)
from experiments.sweep.folder import check_writable
from experiments.sweep.session import Session, open_session, run_uninterrupted
from experiments.sweep.sweep import Profile
from launchers.processes import start_in_background
from launchers.settings import LauncherSettings
from ps_allreduce.errors import LaunchError, at_least
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.record.records import RunRecord, Status
from ps_allreduce.terminal import echo

PROFILE = Profile(name=FOLDER, measurement=MEASUREMENT, repetitions=1, deadline_s=60.0)

#: Sound launches of either side beforehand.
BEFOREHAND = 5

#: So many sound launches, the latest of a side, say how long its step is.
LATEST = 3

#: So often a launch that does not end well, or was disturbed, is made again.
TRIES = 3

#: Share of the processors' time that nobody but the launch and what is planted may use.
MOST_DISTURBED = 0.15

_BURN = ("sh", "-c", "while :; do :; done")


def plant_causes(results: Path, seed: int, launches: int, budget_s: float) -> int:
    """Make the turns that are missing, as far as the time goes, and show what was found.

    Returns:
        The exit status.

    Raises:
        UserError: there can be no emulated hosts here, a folder cannot be written, or there is no
            launch or no time.
        LaunchError: a point cannot be launched.
        KeyboardInterrupt: somebody has interrupted a launch.
    """
    at_least(1, launches=launches)
    at_least(0.0, budget_s=budget_s)
    ends_at, folder = time.monotonic() + budget_s, results / FOLDER / str(seed)
    settings = LauncherSettings(
        launcher="emulated",
        hosts=NETWORK.num_hosts,
        bandwidth=NETWORK.bits_per_s,
        results=results,
    )
    check_writable(folder)
    with (
        surroundings.workplace(settings, folder) as place,
        open_session(place, FOLDER, PROFILE) as session,
    ):
        left = _make_turns(session, settings.data_dir, draws(seed, launches), ends_at)
    if turns := read_lines(folder / FILE, PlantedTurn):
        echo("\n".join(render_found(judge(turns, runs_table(folder)))))
    if left:
        echo(f"{left} turns are missing: the same command goes on.")
    return 1 if left else 0


def _make_turns(session: Session, data_dir: Path, drawn: list[Draw], ends_at: float) -> int:
    """The sound launches, then every draw; returns how many turns are missing for lack of time."""
    notes = session.place.sweep_dir / FILE
    made = read_lines(notes, PlantedTurn)
    numbers = {turn.number for turn in made}
    before = [Draw(side=side, sizes={}) for _ in range(BEFOREHAND) for side in SIDES]
    wanted = list(enumerate([*before, *drawn], start=-len(before)))
    missing = [each for each in wanted if each[0] not in numbers]
    session.place.listener.begin(
        sum(_launches_of(draw) for _, draw in missing),
        sum(_launches_of(draw) for number, draw in wanted if number in numbers),
    )
    for done, (number, draw) in enumerate(missing):
        if time.monotonic() > ends_at:
            return len(missing) - done
        made.append(_turn(session, data_dir, number, draw, made))
        write_lines(notes, made)
    return 0


def _launches_of(draw: Draw) -> int:
    """One with all causes, and without each of them one before and one after it."""
    return 1 + 2 * len(draw.sizes)


def _sound_step(names: Sequence[str], folder: Path) -> SoundStep:
    """The mean of sound launches."""
    columns = ["mean_step_s", "backward_s", "exchange_s", "network_s"]
    own = runs_table(folder).loc[list(names), columns].astype(float).mean()
    return SoundStep(
        step_s=own["mean_step_s"],
        travel_s=own["backward_s"] + own["exchange_s"],
        network_s=own["network_s"],
    )


def _turn(
    session: Session, data_dir: Path, number: int, draw: Draw, made: Sequence[PlantedTurn]
) -> PlantedTurn:
    """The launches without each cause, the one with all of them, and those without each again.

    Launches that get slower or faster meanwhile do so on both sides of the one with all causes.

    Args:
        made: turns before this one.
    """
    sound, sizes = sound_point(draw.side), draw.sizes
    known = [name for turn in made if turn.side == draw.side for name in turn.sound]

    def launched(wanted: Mapping[Plant, float]) -> str:
        if not wanted:
            return _launched(session, sound, 0)
        step = _sound_step(known[-LATEST:], session.place.sweep_dir)
        return _launched(session, planted_point(sound, wanted, step, data_dir), burners(wanted))

    def without_each() -> dict[Plant, str]:
        return {
            plant: launched({other: sizes[other] for other in sizes if other is not plant})
            for plant in sizes
        }

    before = without_each()
    if len(sizes) == 1:
        known += before.values()
    planted = launched(sizes)
    after = without_each()
    return PlantedTurn(
        number=number,
        side=draw.side,
        sizes=sizes,
        planted=planted,
        without={plant: (before[plant], after[plant]) for plant in sizes},
    )


def _launched(session: Session, point: Experiment, count: int) -> str:
    """Launch a point until it ends well and little disturbed it; the identity of the run.

    Where all launches were disturbed, the one that was least.
    """
    log = session.place.sweep_dir / "burners.log"
    ended_well: dict[str, float] = {}
    for _ in range(TRIES):
        with _burning(count, log):
            record = run_uninterrupted(session, point)
        if record.status is Status.OK:
            ended_well[record.run_id] = _disturbed(record, count)
            if ended_well[record.run_id] <= MOST_DISTURBED:
                break
    if not ended_well:
        raise LaunchError(f"{point.title} did not end well {TRIES} times: {record.reason}")
    return min(ended_well, key=lambda name: ended_well[name])


def _disturbed(record: RunRecord, count: int) -> float:
    """What the hypervisor took of the processors, and others where nothing burns a core."""
    others = 0.0 if count else record.foreign_load or 0.0
    return max(others, record.stolen_load or 0.0)


@contextmanager
def _burning(count: int, log: Path) -> Iterator[None]:
    """So many programs that use a core each, and do nothing."""
    with ExitStack() as stack:
        for _ in range(count):
            stack.callback(start_in_background(_BURN, log, {}).kill)
        yield
