"""Which faults there are, how often each is drawn, and the faults of one sweep, drawn from a seed.

Decides nothing about how a fault is carried out.  The same seed draws the same plan for ever, as
long as the table of classes stays as it is.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeVar

T = TypeVar("T")

LAUNCHERS = ("local", "emulated")


class Verb(StrEnum):
    """What is done to a target; from TRUNCATE on, between two calls of the suite."""

    KILL = "kill"
    SIGINT = "SIGINT"
    SIGTERM = "SIGTERM"
    SIGHUP = "SIGHUP"
    STOP = "stop"
    FILL = "fill"
    DELETE = "delete"
    FEW_HANDLES = "leave few handles to"
    LITTLE_SPACE = "leave little address space to"
    TRUNCATE = "truncate"
    GARBLE = "garble"
    RENAME = "rename"
    OTHER_VERSION = "give another version to"
    NEST = "nest"
    REPEAT_KEYS = "repeat keys of"
    WRONG_ORDER = "put a number for the order in"
    FOLDER = "put a folder for"
    FIFO = "put a FIFO for"


class Target(StrEnum):
    """Whom or what a fault hits."""

    SUITE = "suite"
    FORK_SERVER = "fork server"
    GUARD = "guard of a fork server"
    IMPORTING = "importing fork server"
    TASK = "task"
    NETWORK = "emulated network"
    TMPDIR = "TMPDIR"
    RESULTS = "RESULTS"
    SCRATCH = "scratch folder"
    POINT = "runs of a point"
    RECORD = "record"
    RAW = "raw timings"
    DEFINITION = "sweep.json"
    NOTE = "in_flight.json"


#: Faults while the suite runs, with their weights, fixed before the first of a class was injected.
DURING: Mapping[tuple[Verb, Target], int] = {
    (Verb.KILL, Target.SUITE): 8,
    (Verb.KILL, Target.FORK_SERVER): 5,
    (Verb.KILL, Target.TASK): 5,
    (Verb.KILL, Target.NETWORK): 4,
    (Verb.KILL, Target.GUARD): 3,
    (Verb.KILL, Target.IMPORTING): 3,
    (Verb.SIGINT, Target.SUITE): 4,
    (Verb.SIGTERM, Target.SUITE): 3,
    (Verb.SIGHUP, Target.SUITE): 3,
    (Verb.STOP, Target.FORK_SERVER): 3,
    (Verb.STOP, Target.TASK): 3,
    (Verb.STOP, Target.SUITE): 2,
    (Verb.STOP, Target.GUARD): 2,
    (Verb.STOP, Target.NETWORK): 2,
    (Verb.FILL, Target.TMPDIR): 4,
    (Verb.FILL, Target.RESULTS): 4,
    (Verb.FEW_HANDLES, Target.SUITE): 2,
    (Verb.FEW_HANDLES, Target.FORK_SERVER): 2,
    (Verb.LITTLE_SPACE, Target.FORK_SERVER): 2,
    (Verb.LITTLE_SPACE, Target.TASK): 2,
    (Verb.DELETE, Target.SCRATCH): 5,
    (Verb.DELETE, Target.POINT): 3,
    (Verb.DELETE, Target.RECORD): 3,
    (Verb.DELETE, Target.RESULTS): 3,
}

#: Damage between two calls.
BETWEEN: Mapping[tuple[Verb, Target], int] = {
    (Verb.TRUNCATE, Target.RECORD): 2,
    (Verb.GARBLE, Target.RECORD): 2,
    (Verb.RENAME, Target.RECORD): 2,
    (Verb.OTHER_VERSION, Target.RECORD): 2,
    (Verb.NEST, Target.RECORD): 2,
    (Verb.REPEAT_KEYS, Target.RECORD): 2,
    (Verb.FOLDER, Target.RECORD): 2,
    (Verb.FIFO, Target.RECORD): 2,
    (Verb.TRUNCATE, Target.RAW): 2,
    (Verb.TRUNCATE, Target.DEFINITION): 2,
    (Verb.WRONG_ORDER, Target.DEFINITION): 2,
    (Verb.GARBLE, Target.NOTE): 2,
    (Verb.FOLDER, Target.NOTE): 2,
}


class Stage(StrEnum):
    """From when on the delay of a fault is counted."""

    CALL = "call"
    IMPORT = "import"
    STARTING = "starting"
    WARMUP = "warm-up"
    MEASURED = "measured"
    BETWEEN_RUNS = "between runs"


#: Longest delay in seconds after the beginning of a stage.
LONGEST_DELAY_S: Mapping[Stage, float] = {
    Stage.CALL: 15.0,
    Stage.IMPORT: 4.0,
    Stage.STARTING: 1.0,
    Stage.WARMUP: 0.3,
    Stage.MEASURED: 0.3,
    Stage.BETWEEN_RUNS: 0.05,
}

#: Numbers of faults during and after a call: 2.5 per sweep on average.
NUMBERS: Mapping[tuple[int, int], int] = {(1, 0): 2, (1, 1): 3, (0, 2): 2, (2, 0): 2, (2, 1): 2}


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """When a fault strikes: so many seconds after a stage begins for the n-th time (from 1)."""

    stage: Stage
    nth: int
    delay_s: float

    def __str__(self) -> str:
        return f"{self.stage} {self.nth} + {self.delay_s:.2f} s"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One fault.

    Attributes:
        moment: None between two calls.
        for_good: it is not undone before the call is over.
        lasts_s: otherwise it is undone after so many seconds.
        pick: which of several possible victims, from 0 to 1.
    """

    verb: Verb
    target: Target
    moment: Moment | None = None
    for_good: bool = False
    lasts_s: float = 1.0
    pick: float = 0.5

    @property
    def kind(self) -> str:
        """Its class, in words."""
        return f"{self.verb} {self.target}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """One call of the suite under faults, and the damage after it."""

    during: tuple[Fault, ...]
    after: tuple[Fault, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepPlan:
    """What is done to one sweep."""

    seed: int
    launcher: str
    rounds: tuple[Round, ...]

    @property
    def faults(self) -> list[Fault]:
        """All of them, in the order of their rounds."""
        return [fault for one in self.rounds for fault in (*one.during, *one.after)]


def draw_plan(seed: int, launcher: str | None = None) -> SweepPlan:
    """The faults of one sweep.

    Args:
        launcher: instead of the one that is drawn.
    """
    dice = random.Random(f"faults {seed}")
    drawn = dice.choices(LAUNCHERS, (1, 1))[0]
    launcher = launcher or drawn
    rounds = [_draw_round(dice, launcher) for _ in range(dice.choices((1, 2), (3, 1))[0])]
    return SweepPlan(seed=seed, launcher=launcher, rounds=tuple(rounds))


def _draw_round(dice: random.Random, launcher: str) -> Round:
    num_during, num_after = _one_of(dice, NUMBERS)
    has_network = launcher == "emulated"
    possible = {k: weight for k, weight in DURING.items() if has_network or k[1] != Target.NETWORK}
    return Round(
        during=tuple(_draw_fault(dice, possible) for _ in range(num_during)),
        after=tuple(_draw_fault(dice, BETWEEN) for _ in range(num_after)),
    )


def _one_of(dice: random.Random, weights: Mapping[T, int]) -> T:
    return dice.choices(list(weights), list(weights.values()))[0]


def _draw_fault(dice: random.Random, weights: Mapping[tuple[Verb, Target], int]) -> Fault:
    verb, target = _one_of(dice, weights)
    return Fault(
        verb=verb,
        target=target,
        moment=None if weights is BETWEEN else _draw_moment(dice, target),
        for_good=dice.random() < 0.4,
        lasts_s=round(dice.uniform(1.0, 6.0), 2),
        pick=dice.random(),
    )


def _draw_moment(dice: random.Random, target: Target) -> Moment:
    stage = Stage.IMPORT if target is Target.IMPORTING else dice.choice(list(Stage))
    nth = 1 if stage in (Stage.CALL, Stage.IMPORT) else dice.randint(1, 3)
    return Moment(stage=stage, nth=nth, delay_s=round(dice.uniform(0, LONGEST_DELAY_S[stage]), 2))
