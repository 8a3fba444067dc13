"""Whether the explanation finds causes that were planted, and keeps its promises.

Decides what is held against what.  A launch with planted causes meets the sound launches of its
side that were made around the same time, without the one of its own turn: the largest part of the
difference must be the cause that was planted, or of two the larger one.  What a part promises is
held against what launches in the same turn, before and after it, gained without that cause.  How
often those two agree shows what chance leaves of a promise.  Every sound launch also meets the
others: no cause may be found there.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from statistics import fmean
from typing import TypeVar

import pandas as pd
from scipy import stats

from analysis.data.blocks import analysed
from analysis.data.load import read_sweep
from analysis.stats.causes import Difference, difference
from analysis.stats.explained_parts import Cause
from analysis.stats.statistics import CONFIDENCE
from analysis.wording import ratio
from ps_allreduce.errors import UserError
from ps_allreduce.record.files import write_atomically
from ps_allreduce.serialization import from_json, parse_json, to_json

#: The folder of the results, and the file in it that says what was planted where.
FOLDER, FILE = "planted-causes", "planted.jsonl"

#: So many sound launches, the nearest in time, are what a launch is held against.
NEAREST = 6

#: Of a promise, so much more or less may be gained.
TOLERANCE = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """How often something happened, with the exact interval of its rate (Clopper, Pearson 1934)."""

    count: int
    of: int

    @property
    def rate(self) -> float:
        """Between 0 and 1."""
        return self.count / self.of

    @property
    def interval(self) -> tuple[float, float]:
        """At 95 %."""
        ends = stats.binomtest(self.count, self.of).proportion_ci(CONFIDENCE, method="exact")
        return float(ends.low), float(ends.high)

    def __str__(self) -> str:
        low, high = self.interval
        return f"{self.rate:.3f} [{low:.3f}, {high:.3f}]"


class Plant(StrEnum):
    """What can be planted."""

    SLOW_WORKER = "slow worker"
    HOT_SERVER = "hot server"
    SLOW_INPUT = "slow input"
    SLOW_LINK = "slow link"
    BUSY_CORES = "busy cores"
    SHALLOW_PORT = "shallow port"
    RANDOM_LOSS = "random loss"


#: The part of a difference that is the right answer.
ANSWERS: Mapping[Plant, Cause] = {
    Plant.SLOW_WORKER: Cause.WORKER,
    Plant.HOT_SERVER: Cause.HOT_SERVER,
    Plant.SLOW_INPUT: Cause.INPUT,
    Plant.SLOW_LINK: Cause.SLOW_LINK,
    Plant.BUSY_CORES: Cause.FOREIGN,
    Plant.SHALLOW_PORT: Cause.LOST,
    Plant.RANDOM_LOSS: Cause.LOST,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PlantedTurn:
    """Launches that belong together; runs by their identities.

    Attributes:
        number: in the order of the draw; below 0 for sound launches made beforehand.
        side: the strategy.
        sizes: planted causes, and how large each was to be as a share of a step.
        planted: the launch with all of them; of a sound turn, that launch.
        without: of each cause, the launches with all others.
    """

    number: int
    side: str
    sizes: Mapping[Plant, float]
    planted: str
    without: Mapping[Plant, tuple[str, ...]]

    @property
    def sound(self) -> tuple[str, ...]:
        """The launches of the turn without any cause."""
        if not self.sizes:
            return (self.planted,)
        return next(iter(self.without.values())) if len(self.sizes) == 1 else ()


def runs_table(folder: Path) -> pd.DataFrame:
    """The runs of a folder by their identities.

    Raises:
        UserError: there is no record that can be read.
    """
    return analysed(read_sweep(folder)).block.table.set_index("run_id", drop=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What was found of a planted cause.

    Attributes:
        plant, size: what was planted; None for a sound launch.
        first: the part that comes first; None where no difference is told.
        right: it is the answer.
        promised_s: of this cause; None where its part was not found.
        gains_s: by each launch without it.
    """

    side: str
    plant: Plant | None
    size: float
    first: Cause | None
    right: bool
    promised_s: float | None = None
    gains_s: tuple[float, ...] = ()

    @property
    def gained_s(self) -> float | None:
        """The mean gain; None where no launch tells it."""
        return fmean(self.gains_s) if self.gains_s else None

    @property
    def kept(self) -> bool:
        """The gain is within 20 % of the promise."""
        if self.promised_s is None or self.gained_s is None:
            return False
        return abs(self.gained_s - self.promised_s) <= TOLERANCE * self.promised_s

    @property
    def gains_agree(self) -> bool:
        """The launches without the cause gain within 20 % of the same."""
        if self.gained_s is None:
            return False
        return max(self.gains_s) - min(self.gains_s) <= TOLERANCE * abs(self.gained_s)


def judge(turns: Sequence[PlantedTurn], runs: pd.DataFrame) -> pd.DataFrame:
    """A row for each planted cause and each sound launch: the fields of `Found`, and the turn."""
    rows = [
        {"turn": turn.number, **{name: getattr(found, name) for name in _FIELDS}}
        for turn in [*turns, *_sound_again(turns)]
        for found in _found(turn, turns, runs)
    ]
    return pd.DataFrame(rows)


def _sound_again(turns: Sequence[PlantedTurn]) -> list[PlantedTurn]:
    """The sound launches of turns with a cause, as turns of their own."""
    return [
        replace(turn, sizes={}, planted=sound, without={})
        for turn in turns
        if turn.sizes
        for sound in turn.sound
    ]


_FIELDS = (
    *("side", "plant", "size", "first", "right"),
    *("promised_s", "gained_s", "kept", "gains_agree"),
)


def _found(turn: PlantedTurn, turns: Sequence[PlantedTurn], runs: pd.DataFrame) -> list[Found]:
    sound = _around(turn, sound_runs(turns, turn.side, runs), runs)
    told = difference(runs.loc[[turn.planted]], sound, None)
    first = told.told[0].cause if told.told else None
    if not turn.sizes:
        return [Found(side=turn.side, plant=None, size=0.0, first=first, right=first is None)]
    largest = max(turn.sizes.values())
    answers = [ANSWERS[plant] for plant, size in turn.sizes.items() if size == largest]
    return [
        Found(
            side=turn.side,
            plant=plant,
            size=size,
            first=first,
            right=first in answers,
            promised_s=_promise(told, ANSWERS[plant]),
            gains_s=_gains(turn, plant, runs),
        )
        for plant, size in turn.sizes.items()
    ]


def sound_runs(turns: Sequence[PlantedTurn], side: str, runs: pd.DataFrame) -> pd.DataFrame:
    """The sound launches of a side."""
    names = [name for turn in turns if turn.side == side for name in turn.sound]
    return runs.loc[[name for name in names if name in runs.index]]


def _around(turn: PlantedTurn, sound: pd.DataFrame, runs: pd.DataFrame) -> pd.DataFrame:
    """The sound launches nearest in time, without the turn's own: what it gains is the proof."""
    others = sound.drop(index=list(turn.sound), errors="ignore")
    begun = others["started_at"] - runs["started_at"].loc[[turn.planted]].iloc[0]
    return others[others.index.isin(begun.abs().nsmallest(NEAREST).index)]


def _promise(told: Difference, cause: Cause) -> float | None:
    promises = (part.seconds.mean for part in told.causes if part.there and part.cause is cause)
    return next(promises, None)


def _gains(turn: PlantedTurn, plant: Plant, runs: pd.DataFrame) -> tuple[float, ...]:
    steps = runs["mean_step_s"].astype(float).reindex([turn.planted, *turn.without[plant]])
    return tuple(float(gain) for gain in (steps.iloc[0] - steps.iloc[1:]).dropna())


def render_found(found: pd.DataFrame) -> list[str]:
    """A line for all causes together, for each kind, and for each of its sizes."""
    planted = found[found["plant"].notna()]
    if planted.empty:
        return ["no planted cause yet."]
    launches = planted.groupby("turn")["right"].first()
    lines = [
        f"right cause first: {Share(count=int(launches.sum()), of=len(launches))} launches; "
        f"promise kept within {TOLERANCE:.0%}: "
        f"{Share(count=int(planted['kept'].sum()), of=len(planted))} causes",
        f"  launches without a cause agree on its gain within {TOLERANCE:.0%}: "
        f"{Share(count=int(planted['gains_agree'].sum()), of=len(planted))} causes",
    ]
    for cause, group in planted.groupby("plant"):
        lines.append(f"  {cause}: {_group_text(group)}")
    for (plant, size), group in planted.groupby(["plant", "size"]):
        lines.append(f"  {plant}, {size:.0%} of a step: {_group_text(group)}")
    sound = found[found["plant"].isna()]
    named = int((~sound["right"]).sum())
    lines.append(f"sound launches with a cause: {named} of {len(sound)} launches")
    return lines


def _group_text(group: pd.DataFrame) -> str:
    right = f"{int(group['right'].sum())} of {len(group)} right"
    told = group[["promised_s", "gained_s"]].astype(float).dropna()
    if told.empty:
        return right
    promised, gained = told["promised_s"].mean(), told["gained_s"].mean()
    return (
        f"{right}; part found in {len(told)}: promised {promised * 1e3:.2f} ms, "
        f"gained {gained * 1e3:.2f} ms (ratio {ratio(gained / promised)})"
    )


ValueT = TypeVar("ValueT")


def read_lines(path: Path, kind: type[ValueT]) -> list[ValueT]:
    """All values in a file; none where there is no file.

    Raises:
        UserError: a line is no JSON, or no value of that kind.
    """
    if not path.exists():
        return []
    try:
        lines = [parse_json(line) for line in path.read_bytes().splitlines()]
    except ValueError as error:
        raise UserError(f"{path} holds a line that is no JSON ({error}).") from error
    return [from_json(kind, line, str(path)) for line in lines]


def write_lines(path: Path, values: Iterable[object]) -> None:
    """Write a line for each value.

    Raises:
        UserError: no permission, or no space left.
    """
    lines = [json.dumps(to_json(each)) + "\n" for each in values]
    write_atomically(path, "".join(lines).encode())
