"""Successive halving: which candidate is launched next, and which is the best so far.  Pure.

Decides it from the candidates, the share of a side and the launches so far, and from nothing else:
the same command goes on where it stopped.  Every launch is one of fresh processes.  A round
launches all candidates that are left in passes and keeps the better half (Jamieson and Talwalkar,
AISTATS 2016; Li et al., Hyperband, JMLR 2018).  The default stays in to the end.  Half of the share
is for the last round, between the default and the best of the others: these launches did
not choose the candidate; they only decide whether it is faster.
Which candidates there are is decided in `candidates`; nothing is launched here.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count

#: A round keeps one of so many candidates.
ETA = 2

#: Such a part of a share is for the rounds before the last.
CHOOSING = 0.5

#: Candidates of a side, where its share pays for so many launches of each: with one pass in every
#: round, two launches for each are made before the last round.
MOST, LAUNCHES_EACH = 24, 4


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchOutcome:
    """What a launch of a candidate came to.

    Attributes:
        rate: examples per second; None where the launch did not end well.
        node_s: hosts times seconds.
        reason: why it did not end well; empty if it did.
    """

    rate: float | None
    node_s: float
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """A side after one more launch.

    Attributes:
        candidate: that was launched, by its identity.
        round: from 1.
        is_last: of the last round.
        spent_s: hosts times seconds of all launches so far.
        best, best_rate: the candidate that is ahead, and the mean of its rates; None without any.
    """

    candidate: str
    round: int
    is_last: bool
    outcome: LaunchOutcome
    spent_s: float
    best: str | None
    best_rate: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SideStanding:
    """How far the halving of a side has come.

    Attributes:
        moments: one for each launch that counts, in order.
        next: the candidate that is to be launched; None when the side has ended.
    """

    moments: tuple[Moment, ...]
    next: str | None

    @property
    def spent_s(self) -> float:
        """Hosts times seconds so far."""
        return self.moments[-1].spent_s if self.moments else 0.0

    @property
    def best(self) -> str | None:
        """The candidate that is ahead."""
        return self.moments[-1].best if self.moments else None


#: The launches of every candidate, in their order.
Launches = Mapping[str, Sequence[LaunchOutcome]]


def standings(
    sides: Sequence[Sequence[str]], share_s: float, launches: Launches
) -> list[SideStanding]:
    """How far each side has come.

    Args:
        sides: the candidates of each, the default first, then those that matter most.
        share_s: hosts times seconds of each side.
    """
    firsts = [launches.get(side[0], ())[:1] for side in sides]
    size = 1
    if all(firsts):  # the defaults tell how many candidates a share pays for
        node_s = math.fsum(first[0].node_s for first in firsts) / len(firsts)
        size = min(field_size(share_s / node_s), *map(len, sides))
    return [_replayed(side[:size], share_s, launches) for side in sides]


def next_side(sides: Sequence[SideStanding]) -> int | None:
    """The side that is launched next: of those that go on, the one that has spent least.

    So a drift of the machine hits all sides alike.
    """
    going = [number for number, side in enumerate(sides) if side.next is not None]
    return min(going, key=lambda number: sides[number].spent_s, default=None)


def field_size(affordable: float) -> int:
    """How many candidates a side begins with, if it can pay so many launches."""
    return max(2, min(MOST, int(affordable / LAUNCHES_EACH)))


def mean_rate(outcomes: Sequence[LaunchOutcome]) -> float | None:
    """The geometric mean of the rates; None without any."""
    logs = [math.log(each.rate) for each in outcomes if each.rate is not None]
    return math.exp(math.fsum(logs) / len(logs)) if logs else None


@dataclass(slots=True, kw_only=True)
class _Replay:
    """Goes through the launches of a side again.

    Attributes:
        default: the candidate that stays in, unless it fails twice.
        left: the candidates that are still in.
        taken: the launches so far of each candidate that was launched, but for
        forgiven: the first failure of each.
    """

    default: str
    share_s: float
    launches: Launches
    left: list[str]
    round: int = 0
    taken: dict[str, list[LaunchOutcome]] = field(default_factory=dict)
    forgiven: set[str] = field(default_factory=set)
    moments: list[Moment] = field(default_factory=list)

    @property
    def spent_s(self) -> float:
        """Hosts times seconds so far."""
        return self.moments[-1].spent_s if self.moments else 0.0

    def pays(self, candidate: str) -> bool:
        """What is left of the share is enough for one more launch."""
        return not self.moments or self.spent_s + self.likely_s(candidate) <= self.share_s

    def likely_s(self, candidate: str) -> float:
        """What a launch takes: as those of this candidate did, else as all did."""
        known = self.taken.get(candidate) or [moment.outcome for moment in self.moments]
        return math.fsum(each.node_s for each in known) / len(known) if known else 0.0

    def launch(self, candidate: str) -> bool:
        """Take the next launch of a candidate; False where it is to be made still.

        A candidate that fails is launched again at once, and is out when it fails once more.
        """
        before = self.taken.setdefault(candidate, [])
        made = self.launches.get(candidate, ())
        number = len(before) + (candidate in self.forgiven)
        if len(made) == number:
            return False
        outcome = made[number]
        if outcome.rate is None and candidate not in self.forgiven:
            self.forgiven.add(candidate)
        else:
            before.append(outcome)
            if outcome.rate is None:
                self.left.remove(candidate)
        rates = self.rates()
        best = max(rates, key=rates.__getitem__, default=None)
        self.moments.append(
            Moment(
                candidate=candidate,
                round=self.round,
                is_last=self.is_last_round(),
                outcome=outcome,
                spent_s=self.spent_s + outcome.node_s,
                best=best,
                best_rate=None if best is None else rates[best],
            )
        )
        return True

    def repeats(self, candidate: str) -> bool:
        """Its launch has just been forgiven, and is made again."""
        return self.moments[-1].outcome.rate is None and candidate in self.left

    def rates(self) -> dict[str, float]:
        """The mean of every candidate that is left and was launched.

        A pass counts when all have made it, so that a machine that slows down hits all alike.
        """
        made = {name: self.taken[name] for name in self.left if self.taken.get(name)}
        passes = min(map(len, made.values()), default=0)
        return {name: mean_rate(each[:passes]) or 0.0 for name, each in made.items()}

    def order(self, number: int) -> list[str]:
        """Of a pass: there and back in turn, so that a steady drift favours nobody."""
        return self.left[:: -1 if number % 2 else 1]

    def end_of_round_s(self) -> float:
        """The last round gets what is left; those before it equal parts of what they may spend."""
        if self.is_last_round():
            return self.share_s
        left_s = max(0.0, CHOOSING * self.share_s - self.spent_s)
        return self.spent_s + left_s / math.ceil(math.log(len(self.others()), ETA))

    def pass_ends_s(self) -> float:
        """What will have been spent after one more pass."""
        return self.spent_s + math.fsum(map(self.likely_s, self.left))

    def others(self) -> list[str]:
        """The candidates that are left without the default."""
        return [candidate for candidate in self.left if candidate != self.default]

    def is_last_round(self) -> bool:
        """At most one is left beside the default."""
        return len(self.others()) <= 1

    def keep_the_better(self) -> None:
        """End a round."""
        ahead = sorted(self.others(), key=self.rates().__getitem__, reverse=True)
        kept = {self.default, *ahead[: math.ceil(len(ahead) / ETA)]}
        self.left = [candidate for candidate in self.left if candidate in kept]


def _replayed(side: Sequence[str], share_s: float, launches: Launches) -> SideStanding:
    replay = _Replay(default=side[0], share_s=share_s, launches=launches, left=[*side])
    missing = next(_unmade(replay), None)
    return SideStanding(moments=tuple(replay.moments), next=missing)


def _unmade(replay: _Replay) -> Iterator[str]:
    """Go through the launches that were made, and on to the first that was not."""
    for candidate in _turns(replay):
        is_due = True
        while is_due:
            if not replay.pays(candidate):
                return
            if not replay.launch(candidate):
                yield candidate
            is_due = replay.repeats(candidate)


def _turns(replay: _Replay) -> Iterator[str]:
    """The candidates in the order in which they are launched, to the end of the last round."""
    passes, is_last = count(), False
    while not is_last:
        is_last = replay.is_last_round()
        replay.round += 1
        end_s = replay.end_of_round_s()
        yield from replay.order(next(passes))
        while len(replay.left) > 1 and replay.pass_ends_s() <= end_s:
            yield from replay.order(next(passes))
        replay.keep_the_better()
