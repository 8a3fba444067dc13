"""Real comparisons of a setting with itself, which add up over sessions.

Decides how launches of one point become comparisons: neighbours in time are a pair, and a coin says
which of the two is called the first.  Whatever is told apart then is a false alarm.  The file grows
by a line for each comparison; a session that is in it already adds nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from analysis.data.blocks import analysed
from analysis.data.cases import Point, make_cases
from analysis.data.load import read_sweep
from analysis.stats.decision import Contest, Outcome, decide
from analysis.stats.statistics import CONFIDENCE, MIN_LAUNCHES
from analysis.suite.json_lines import read_lines, write_lines
from analysis.suite.rule.self_test import Share
from analysis.suite.targets import no_less_than, target_text
from analysis.wording import count_text

#: The file in the results, and the folder of the sweeps that it is made from.
FILE, FOLDER = "self_comparisons.jsonl", "self-comparisons"

#: How many there must be, and from how many sessions.
ENOUGH, SESSIONS = 60, 3


@dataclass(frozen=True, slots=True, kw_only=True)
class SelfComparison:
    """A setting held against itself.

    Attributes:
        session: name of the sweep, and when it began.
        point: title of the experiment.
        launches: on either side.
        fingerprint: of the machine, the software and the measured program.
    """

    session: str
    point: str
    launches: int
    ratio: float
    p_value: float
    outcome: Outcome
    fingerprint: str

    @property
    def false_alarm(self) -> bool:
        """The setting is said to be faster than itself."""
        return self.outcome in (Outcome.FASTER, Outcome.SLOWER)


def compare_with_itself(sweep: Path, launches: int) -> list[SelfComparison]:
    """As many comparisons as the launches of every point of a sweep make; the rest is left over.

    Raises:
        UserError: the sweep holds no record that can be read.
    """
    files = analysed(read_sweep(sweep))
    cases = make_cases(files.block.table, files.files.records)
    session = f"{sweep.name} {files.block.table['started_at'].min():%Y-%m-%d %H:%M:%S}"
    return [
        comparison
        for case in cases
        for point in case.points
        for comparison in _of_point(point, launches, session, files.block.fingerprint)
    ]


def compared_in(sweep: Path) -> list[SelfComparison]:
    """Comparisons of launches that a sweep made for another purpose, once it is complete."""
    if not (sweep / "runs").is_dir() or analysed(read_sweep(sweep)).missing:
        return []
    return compare_with_itself(sweep, MIN_LAUNCHES)


def _of_point(
    point: Point, launches: int, session: str, fingerprint: str
) -> Iterator[SelfComparison]:
    rates = point.launches.sort_values("started_at")["examples_per_sec"].astype(float).to_numpy()
    whole = len(rates) // (2 * launches) * 2 * launches
    coins = np.random.default_rng(whole)
    for pairs in coins.permuted(rates[:whole].reshape(-1, launches, 2), axis=2):
        first, second = (pd.Series(pairs[:, side]) for side in (0, 1))
        (decision,) = decide([Contest.of([first], [second])])
        if decision.ratio is not None and decision.p_value is not None:
            yield SelfComparison(
                session=session,
                point=point.experiment.title,
                launches=launches,
                ratio=decision.ratio,
                p_value=decision.p_value,
                outcome=decision.outcome,
                fingerprint=fingerprint,
            )


def add_to(path: Path, found: list[SelfComparison]) -> list[SelfComparison]:
    """Write those of new sessions behind the others; returns all.

    Raises:
        UserError: the file cannot be read or written.
    """
    before = read_lines(path, SelfComparison)
    known = {each.session for each in before}
    new = [each for each in found if each.session not in known]
    if not new:
        return before
    together = [*before, *new]
    write_lines(path, together)
    return together


def render_self_comparisons(found: list[SelfComparison], content: dict[str, object]) -> str:
    """Put the figures below `self_comparisons`, and tell them."""
    if not found:
        return "no comparison of a setting with itself yet: python -m experiments self-comparisons"
    alarms = Share(count=sum(each.false_alarm for each in found), of=len(found))
    sessions, reaches = len({each.session for each in found}), alarms.interval[0] <= 1 - CONFIDENCE
    share = min(len(found) / ENOUGH, sessions / SESSIONS) if reaches else 0.0
    content["self_comparisons"] = {
        "comparisons": len(found),
        "sessions": sessions,
        "false_alarm_rate": alarms.rate,
        "false_alarm_interval": list(alarms.interval),
        "interval_reaches_5_percent": reaches,
    }
    return (
        f"a setting compared with itself, {len(found)} times in "
        f"{count_text(sessions, 'sweep')}: false alarms "
        f"{alarms}, the interval {'reaches' if reaches else 'lies above'} 5 % "
        + target_text(
            f"at least {ENOUGH} in {SESSIONS}, and it reaches 5 %",
            (share, share),
            no_less_than(1.0),
            "python -m experiments self-comparisons makes more",
        )
    )
