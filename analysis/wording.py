"""How numbers, rates, counts and comparisons are spelled in tables and sentences."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import compress

import pandas as pd

from analysis.stats.decision import LEVEL, MARGIN, MOST_MISSING, Decision, Outcome
from ps_allreduce.point.wire import WireType
from ps_allreduce.record.records import BUSY_LIMIT, FOREIGN_LIMIT

#: Stands for a value that is not there.
NONE = "-"

#: Values that are nearer to a border than by this share lie on it: no launches tell them apart.
_NEAR = 1e-5

#: Enough to tell all other values from it.
_MOST_DIGITS = 6

#: So many links are named.
_MOST_LINKS = 4

#: So many points are named of which some runs are told.
_MOST_POINTS = 3

_PREFIXES = (("G", 1e9), ("M", 1e6), ("k", 1e3))


def rate_text(bits_per_s: float) -> str:
    """`190 Mbit/s`, three digits."""
    return _with_prefix(bits_per_s, "bit/s")


def bytes_text(size: float) -> str:
    """`12.8 MB`, three digits."""
    return _with_prefix(size, "B")


def _with_prefix(value: float, unit: str) -> str:
    rounded = three_digits(value)
    fitting = (each for each in _PREFIXES if rounded >= each[1])
    prefix, size = next(fitting, ("", 1.0))
    return f"{rounded / size:g} {prefix}{unit}"


def three_digits(value: float) -> float:
    """A number without what nobody can tell."""
    return float(f"{value:.3g}")


def number(value: float | None) -> str:
    """`123.4`, or a dash."""
    if value is None or pd.isna(value):
        return NONE
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def ratio(value: float | None, digits: int = 2) -> str:
    """`1.80`, or a dash; two digits of what is less than the last place."""
    if value is None or pd.isna(value):
        return NONE
    return f"{value:.2g}" if 0 < abs(value) < 10**-digits else f"{value:.{digits}f}"


def with_interval(
    spell: Callable[[float | None], str],
    centre: float | None,
    low: float | None,
    high: float | None,
) -> str:
    """`1.80 [1.60, 2.05]`, or the centre alone where there is no interval."""
    ends = "" if pd.isna(low) or pd.isna(high) else f" [{spell(low)}, {spell(high)}]"
    return spell(centre) + ends


def ratio_text(centre: float | None, low: float | None, high: float | None, least: int = 2) -> str:
    """`1.80 [1.60, 2.05]`; more digits where an end would read as 1 and is not."""
    digits = max(least, _digits_beside(1.0, (low, high), ratio))
    return with_interval(partial(ratio, digits=digits), centre, low, high)


def p_text(value: float | None) -> str:
    """`0.019`, or a dash; more digits where it would read as the level of a decision."""
    digits = _digits_beside(LEVEL, (value,), _p_text)
    return _p_text(value, digits)


def _p_text(value: float | None, digits: int) -> str:
    return NONE if pd.isna(value) else f"{value:.{digits}g}"


def percent_text(share: float, border: float, least: int = 0) -> str:
    """`42%`; more digits where it would read as a border and is not."""

    def spell(value: float | None, digits: int) -> str:
        return NONE if value is None else f"{value:.{digits}f}"

    return f"{share:.{_digits_beside(100 * border, (100 * share,), spell, least)}%}"


def _digits_beside(
    border: float,
    values: Sequence[float | None],
    spell: Callable[[float | None, int], str],
    least: int = 2,
) -> int:
    """How many digits, from so many on, tell on which side of a border each value lies."""
    is_at = partial(math.isclose, border, rel_tol=_NEAR)
    beside = [value for value in values if not pd.isna(value) and not is_at(value)]
    hidden = (
        any(math.isclose(float(spell(value, digits)), border) for value in beside)
        for digits in range(least, _MOST_DIGITS)
    )
    return next((least + more for more, hides in enumerate(hidden) if not hides), _MOST_DIGITS)


def count_text(count: int, what: str) -> str:
    """`1 run`, `2 runs`, `2 launches`."""
    plural = "es" if what.endswith("ch") else "s"
    return f"{count} {what}{plural * (count != 1)}"


def workers_text(count: int) -> str:
    """`1 worker`, `2 workers`."""
    return count_text(count, "worker")


def links_text(links: Sequence[tuple[str, str]]) -> str:
    """`n0 to n1 and n1 to n2`; of many links the first ones."""
    named = [f"{source} to {target}" for source, target in links]
    if len(named) > _MOST_LINKS:
        named = [*named[: _MOST_LINKS - 1], f"{len(named) - _MOST_LINKS + 1} more"]
    *others, last = named
    return f"{', '.join(others)} and {last}" if others else last


def transports_label(first: str | None, second: str | None) -> str:
    """`different transports (tcp, nccl)`, or formats of gradients; empty where both are alike."""
    if first == second:
        return ""
    parts = [(each or NONE).partition(" in ") for each in (first, second)]
    if len({carrier for carrier, _, _ in parts}) > 1:
        return f"different transports ({first}, {second})"
    formats = ", ".join(form or WireType.FLOAT32 for _, _, form in parts)
    return f"different formats of gradients ({formats})"


def factor_text(decision: Decision) -> str:
    """`1.80x [1.60, 2.05]`, of a decision that has a ratio; what is faster is beyond the margin."""
    is_faster = decision.outcome is Outcome.FASTER
    least = _digits_beside(1 + MARGIN, (decision.ratio,), ratio) if is_faster else 2
    centre, blank, interval = ratio_text(*decision.ends, least).partition(" ")
    return f"{centre}x{blank}{interval}"


def launches_text(decision: Decision) -> str:
    """How many launches a decision rests on."""
    if decision.n_first == decision.n_second:
        return f"{count_text(decision.n_first, 'launch')} each"
    return f"{decision.n_first} and {decision.n_second} launches"


def missing_text(decision: Decision) -> str:
    """`about 6 more launches of each side may decide`, of a decision that is none."""
    if decision.missing is None:
        return f"more than {MOST_MISSING} more launches of each side would be needed"
    return f"about {count_text(decision.missing, 'more launch')} of each side may decide"


def outcome_text(decision: Decision) -> str:
    """What may be said of the first side, and what is missing where that is nothing."""
    if decision.outcome is Outcome.UNDECIDED:
        return f"{decision.outcome}: {missing_text(decision)}"
    return f"{decision.outcome}{': ' * bool(decision.doubt)}{decision.doubt}"


def limited_text(limited: int, runs: str) -> str:
    """In how many of `8 runs` processors may have been the limit; empty if in none."""
    told = f"In {limited} of {runs}, shared processors were {BUSY_LIMIT:.0%} busy or more, so they "
    return f"{told}may have been the limit." if limited else ""


def points_text(points: Sequence[str], chosen: Iterable[bool]) -> str:
    """`: 2 of all-reduce, 4 workers; 1 of single, 1 worker`, of some runs; empty if it is all.

    Args:
        points: of each run its point.
    """
    some = [*compress(points, chosen)]
    if len(some) == len(points):
        return ""
    counts = Counter(some).most_common()
    # A single other one is as short by its name.
    most = _MOST_POINTS + (len(counts) == _MOST_POINTS + 1)
    told = [f"{count} of {point}" for point, count in counts[:most]]
    if others := [count for _, count in counts[most:]]:
        runs = count_text(sum(others), "run")
        told.append(f"{runs} of {count_text(len(others), 'other point')}")
    return f": {'; '.join(told)}"


def taken_text(
    loads: Mapping[str, Sequence[float | None]], runs: str, points: Sequence[str] = ()
) -> str:
    """In how many of `8 runs` others took much of the processors; empty if nobody did.

    Args:
        loads: what each of them took of a host in each run; None where that is not known.
        runs: all of them, counted.
        points: of each run its point, where the text names those.
    """
    told = " and to ".join(
        f"{name} in {sum(much)} of {runs} ({_known_text(own)}up to "
        f"{percent_text(max(filter(None, own)), FOREIGN_LIMIT)}{points_text(points, much)})"
        for name, own in loads.items()
        if any(much := [(load or 0.0) > FOREIGN_LIMIT for load in own])
    )
    return (
        f"More than {FOREIGN_LIMIT:.0%} of a host's processor time went to {told}." if told else ""
    )


def _known_text(loads: Sequence[float | None]) -> str:
    """Of how many runs a load is known; empty where of all."""
    known = sum(load is not None for load in loads)
    return "" if known == len(loads) else f"known of {known}; "


def rates_text(rates: Iterable[float]) -> str:
    """`3 Gbit/s to 9.3 Gbit/s`, of the slowest and the fastest of some rates, or the one."""
    ends = sorted(rates)
    return " to ".join(dict.fromkeys(map(rate_text, (ends[0], ends[-1]))))


def range_text(shares: pd.Series, border: float = math.nan) -> str:
    """`31 to 64%`, of at least one share, or `64%`, or `under 1%`.

    Args:
        border: on the one or other side of which a share is something else; none by default.
    """
    low, high = (percent_text(share, border) for share in (shares.min(), shares.max()))
    if low == high:
        return "under 1%" if high == "0%" else high
    return f"{low.rstrip('%')} to {high}"


def capital(text: str) -> str:
    """A sentence from words that begin small; a name such as `ps_sync` stays what it is."""
    return text if "_" in text.partition(" ")[0] else text[:1].upper() + text[1:]


def slug(name: str) -> str:
    """A name as part of a file name."""
    return re.sub(r"[^A-Za-z0-9.]+", "-", name).strip("-")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TextTable:
    """A table of a page, or of the screen.

    Attributes:
        rows: text, under headings.
        title: empty where the page's own says enough.
        folded: what stands in its place until a reader opens it; empty if it is open.
        wraps: columns of long text, with the class that says how they wrap.
    """

    rows: pd.DataFrame
    title: str = ""
    caption: str = ""
    folded: str = ""
    wraps: Mapping[str, str] = field(default_factory=dict)
