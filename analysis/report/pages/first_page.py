"""The first page of a report: the numbers that matter, and every warning.

Decides which numbers stand beside the verdict, and what a reader must know before believing any of
them.  The sentences of the verdict are decided in `verdict`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from analysis.data.blocks import SweepResults
from analysis.data.cases import Case, Point
from analysis.report.circumstances import unfinished_text
from analysis.report.pages.page_parts import CaseReport, Page
from analysis.report.verdict import Verdict
from analysis.stats.comparisons import Comparison, comparisons
from analysis.stats.decision import UNSURE
from analysis.stats.findings import leader, leading, plain_first
from analysis.stats.points import base_text, point_table
from analysis.stats.rivals import Kind, contenders, default_text
from analysis.stats.setting_pairs import ladders
from analysis.stats.statistics import estimate
from analysis.wording import (
    capital,
    count_text,
    factor_text,
    number,
    rate_text,
    ratio_text,
    with_interval,
    workers_text,
)
from ps_allreduce.record.records import RunRecord, Status

#: So many records are named.
_MOST_NAMED = 4

#: No part of a name, such as `worker:3` or `n12`.
_FIGURE = r"(?<![\w:.])\d+(?:\.\d+)?"

_SHARES = {
    "efficiency_single": "efficiency on {base}",
    "fraction": "of the speed that links and computation allow",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyNumber:
    """A number of the first page.

    Attributes:
        value: with its interval, as text.
        meaning: what it is a number of.
    """

    value: str
    meaning: str


def with_verdict(reports: Sequence[CaseReport], study: Page | None) -> list[CaseReport]:
    """Those whose verdict is told; a study with a page has its own question, so there must be one.

    Args:
        study: the page of the study that the sweep is of.
    """
    return [each for each in reports if study is None or comparisons(each.case).main is not None]


def key_numbers(case: Case) -> list[KeyNumber]:
    """Rates and ratios of what the headline compares, the faster one first; else the fastest.

    What is compared is plain TensorFlow where the headline begins with it, both sides, and the
    hybrid; of ladders both ends.
    """
    table = comparisons(case)
    if table.main is None and (contending := next(contenders(case), None)):
        return _numbers_of_contenders(case, contending)
    if table.main is None and (found := [*ladders(case)]):
        ends = [point for ladder in found for point in (ladder.points[0], ladder.points[-1])]
        return [_rate_number(case, point) for point in ends if len(point.rates)]
    if table.main is None:
        measured = [point for point in case.points if len(point.rates)]
        exchanging = [point for point in measured if point.setting.traits.communicates()]
        shown = exchanging or measured
        return [_rate_number(case, leader(table, shown))] if shown else []
    rows = [*plain_first(table), table.main, *table.of(Kind.HYBRID)]
    rows = [row.better_first() for row in rows]
    points = dict.fromkeys(point for row in rows for point in row.points if len(point.rates))
    return [
        *(_rate_number(case, point) for point in points),
        *(
            _ratio_number(row, " over ".join(point.setting.label for point in row.points))
            for row in rows
            if row.decision.ratio is not None
        ),
    ]


def _ratio_number(row: Comparison, what: str) -> KeyNumber:
    """A ratio, of which launches, the level of its interval, and that there is no verdict.

    What is as usual is left out: all launches, and the usual level.
    """
    told = ["ratio"]
    used = row.decision.n_first, row.decision.n_second
    if used != tuple(len(point.rates) for point in row.points):
        told.append("of common turns")
    if row.level:
        told.append(f"{row.level} interval")
    if row.outcome in UNSURE:
        told.append(str(row.outcome))
    return KeyNumber(
        value=factor_text(row.decision).replace("x", "", 1), meaning=f"{', '.join(told)}: {what}"
    )


def _numbers_of_contenders(case: Case, contending: Sequence[Point]) -> list[KeyNumber]:
    """The rate that leads, what it is faster than, and how far it is from what could be."""
    table = comparisons(case)
    best, row = leader(table, contending), leading(table, contending)
    gain = []
    if row is not None:
        rival = row.second.best
        named = f"{rival.setting.label}{default_text(rival, contending)}"
        gain = [_ratio_number(row, f"over {named}")]
    return [_rate_number(case, best), *gain, *_share_numbers(case, best)]


def _share_numbers(case: Case, point: Point) -> list[KeyNumber]:
    """Efficiency, or where none is claimed the share of the bound; nothing where neither is."""
    own = point_table(case).iloc[case.points.index(point)]
    for name, meaning in _SHARES.items():
        if not math.isnan(own[name]):
            ends = (own[name], own[f"{name}_low"], own[f"{name}_high"])
            told = meaning.format(base=base_text(case))
            return [KeyNumber(value=ratio_text(*ends), meaning=told)]
    return []


def _rate_number(case: Case, point: Point) -> KeyNumber:
    where = f"{point.setting.label}, {workers_text(point.num_workers)}"
    value = with_interval(number, *estimate(point.rates).ends)
    return KeyNumber(value=value, meaning=f"{case.unit}/s: {where}")


def warnings(results: SweepResults, told: Sequence[tuple[Case, Verdict]]) -> list[str]:
    """What is missing of the sweep, doubts of every case, and doubts of the runs."""
    by_case = [(case, line) for case, verdict in told for line in verdict.warnings]
    shared = {line for _, line in by_case if all((case, line) in by_case for case, _ in told)}
    of_cases = [line if line in shared else f"{case.name}: {line}" for case, line in by_case]
    lines = [*_missing_lines(results), *_chosen_lines(results), *of_cases, *_run_lines(results)]
    return list(dict.fromkeys(lines))


def _missing_lines(results: SweepResults) -> Iterator[str]:
    if damaged := results.files.damaged:
        yield f"{count_text(len(damaged), 'file')} could not be read and {_are(damaged)} left out."
    if results.missing:
        yield f"The sweep is unfinished: {unfinished_text(results)}"
    if older := results.older_blocks:
        yield (
            f"{count_text(len(older), 'block')} of runs from another machine, software or measured "
            f"program {_are(older)} left out."
        )


def _chosen_lines(results: SweepResults) -> Iterator[str]:
    for model, bits_per_s in sorted(results.files.definition.link_rates.items()):
        batch = results.files.definition.batches.get(model)
        also = f" and a batch of {batch} per worker" if batch else ""
        yield (
            f"The rate of the emulated links was not given: a first look chose "
            f"{rate_text(bits_per_s)}{also} for {model}. At another rate"
            f"{' or batch' * bool(batch)}, ratios may differ."
        )


def _are(things: Sequence[object]) -> str:
    return "is" if len(things) == 1 else "are"


def _is_of_case(line: str, record: RunRecord) -> bool:
    """Cases tell it of all runs; which host was disturbed is news where there are several."""
    is_one_machine = record.experiment.network is not None or len(record.hosts) == 1
    told = is_one_machine and line.startswith(("other programs took ", "the hypervisor took "))
    return told or line.startswith("this machine's processors were ")


def _run_lines(results: SweepResults) -> list[str]:
    """Doubts of the runs with their number, and what is missing on disk."""
    table = results.block.table
    in_order = [results.files.records[path] for path in table.index]
    titles = [
        (line, record.experiment.title)
        for record in in_order
        for line in record.warnings
        if not _is_of_case(line, record)
    ]
    lines = _counted(titles)
    missing = table.loc[(table["status"] == Status.OK) & ~table["raw_timings"], "record_path"]
    if len(missing):
        more = f" and {len(missing) - _MOST_NAMED} more" * (len(missing) > _MOST_NAMED)
        lines.append(
            f"Raw timings are missing beside {count_text(len(missing), 'record')} "
            f"({', '.join(missing[:_MOST_NAMED])}{more}); their figures are those that the records "
            "hold, and the report explains no difference of their points."
        )
    return lines


def _counted(told: Iterable[tuple[str, str]]) -> list[str]:
    """Every line once, with its number; lines that differ in figures only count as the same.

    The one with the largest first figure is told.

    Args:
        told: lines, each with the title of its point.
    """
    alike: dict[str, list[tuple[str, str]]] = {}
    for line, title in told:
        alike.setdefault(re.sub(r"[0-9.]+", "0", line), []).append((line, title))
    groups = sorted(alike.values(), key=len, reverse=True)
    return [_counted_text(*zip(*own, strict=True)) for own in groups]


def _counted_text(lines: Sequence[str], titles: Sequence[str]) -> str:
    largest = max(lines, key=lambda line: [*map(float, re.findall(_FIGURE, line))])
    others, points = "; figures of one" * (len({*lines}) > 1), {*titles}
    where = titles[0] if len(points) == 1 else f"{len(points)} points"
    return f"{capital(largest)} ({count_text(len(lines), 'run')} of {where}{others})"
