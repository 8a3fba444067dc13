"""The pages of a report about a case: what each of them holds.

Decides their order, which tables and sentences stand together, and how pairs that were compared are
spelled, the faster setting first.  What else stands on them is decided where it is made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import compress

import pandas as pd

from analysis.data.cases import MARK, Case
from analysis.report.explanation import (
    explanation_lines,
    explanation_note,
    explanation_table,
    meanings_table,
)
from analysis.report.meetings import each_text, scaling_lines_of
from analysis.report.network_items import LOOKED_UP_NOTE, looked_up_rows
from analysis.report.pages.page_parts import CaseReport, PagePart
from analysis.report.table import heading_of, on_several_hosts, pairs_lines, report_table
from analysis.report.what_was_run import what_was_run
from analysis.report.where_time_goes import (
    VIEWER,
    parts_note,
    parts_table,
    pop_note,
    pop_table,
    tasks_table,
    traced_table,
)
from analysis.stats.comparisons import Comparison, comparisons, pairs_of
from analysis.stats.decision import Decision, Outcome
from analysis.stats.points import (
    BASES,
    PlacementPoint,
    base_text,
    left_out_text,
    placement_points,
    point_table,
)
from analysis.stats.rivals import Kind
from analysis.stats.setting_pairs import ladders, varies_exchange, without_changed
from analysis.stats.statistics import CONFIDENCE, estimate
from analysis.wording import (
    NONE,
    TextTable,
    capital,
    factor_text,
    number,
    outcome_text,
    p_text,
    ratio,
    transports_label,
    with_interval,
)
from ps_allreduce.record.choices import exchange_sentence

#: Stands below a table of pairs, after what its ratio is of.
CORRECTED = "Method tells how interval and p are corrected."

_COMPARED = {"workers": "workers", "ratio": f"ratio [{CONFIDENCE * 100:.0f} %]"}

#: Columns of the tables of pairs, and their headings.
_PAIRS = {"first": "first", "second": "second", **_COMPARED, "p": "p", "outcome": "first is"}
_PAIRS_APART = {**_PAIRS, "transports": "also different"}
_SIDES = {"kind": "compared", **_PAIRS}
#: These have tables of their own.
_OF_OTHER_TABLES = (Kind.PAIR, Kind.CHANGED, Kind.MET)
_CHANGED = {"first": "setting", "second": "changed from", **_COMPARED, "n": "n"}
_CHANGED |= {"p": "p", "outcome": "setting is"}


def _results(report: CaseReport) -> PagePart:
    case = report.case
    changed = TextTable(
        rows=changed_rows(case),
        title="Changed settings",
        caption=f"Each setting against the one that it is changed from: ratio of {case.unit}/s "
        f"over n launches. {CORRECTED}",
    )
    return PagePart(
        tables=[TextTable(rows=report_table(case, "results")), changed],
        notes=[legend(case)],
    )


def _comparisons(report: CaseReport) -> PagePart:
    case = report.case
    sides, pairs = side_rows(case), pair_rows(case)
    apart = pair_rows(case, same_transport=False)
    left_out = "Settings that pairs leave out are in the table of changed settings."
    caption = f"Ratio of {case.unit}/s, first over second. {CORRECTED}"
    has_met = Kind.MET in {*sides.get("compared", ())}
    of_met = " Pairs of two compared sides stand here where they are decided."
    return PagePart(
        sentences=report.verdict.details,
        tables=[
            TextTable(
                rows=sides,
                caption=caption + of_met * has_met,
                folded=f"Comparisons by kind ({len(sides)})",
            ),
            TextTable(
                rows=pairs,
                caption=caption,
                folded="Pairs of synchronous settings on the same transport, at the most workers "
                f"that have any ({len(pairs)})",
            ),
            TextTable(
                rows=apart,
                caption="What is also different may be what sets them apart.",
                folded=f"Pairs with different transports or formats of gradients ({len(apart)})",
            ),
        ],
        notes=[left_out] * (without_changed(case) is not case and len(pairs) + len(apart) > 0),
    )


def _scaling(report: CaseReport) -> PagePart:
    if not _has_speedups(report.case):
        bases = f"{base_text(report.case)} or one worker of the same setting"
        return PagePart(
            sentences=[f"No speed-ups: they need a launch of a base that ended well, {bases}."]
        )
    return PagePart(
        sentences=unclaimed_lines(report.case),
        tables=[TextTable(rows=report_table(report.case, "scaling"))],
        notes=scaling_lines(report.case),
    )


def _placement(report: CaseReport) -> PagePart:
    placed = placement_points(report.case)
    astray = [
        f"Not as planned, {each.point.experiment.title}: {line}"
        for each in placed
        for line in each.deviations
    ]
    rows = pd.DataFrame([_placement_row(each, report.case.unit) for each in placed])
    return PagePart(
        sentences=astray,
        tables=[
            TextTable(
                rows=rows,
                caption="Trainable bytes per parameter server, of what is exchanged whole.",
                wraps={"planned bytes": "bytes", "read back": "bytes"},
            ),
            TextTable(
                rows=looked_up_rows(report.case),
                title="Rows that are looked up",
                caption=LOOKED_UP_NOTE,
            ),
        ],
    )


def _breakdown(report: CaseReport) -> PagePart:
    case = report.case
    parts, tasks, steps = parts_table(case), tasks_table(case), report_table(case, "steps")
    return PagePart(
        tables=[
            TextTable(rows=parts, caption=parts_note(case, parts)),
            TextTable(
                rows=tasks,
                caption="Means over launches."
                + " MB: trainable bytes of a server." * bool(placement_points(case)),
                folded=f"Every task ({len(tasks)})",
            ),
            TextTable(
                rows=steps,
                title="Steps",
                caption=_EXPOSED * ("exposed communication ms" in steps),
                wraps={"steps of launches": "long"},
            ),
            TextTable(
                rows=report_table(case, "bounds"),
                title="Bounds by the links",
                caption=" ".join(_bounds_lines(case)),
            ),
        ]
    )


#: Of the table of steps.
_EXPOSED = (
    "Exposed communication: a step without compute and input wait, so waiting for others, updates "
    "and dispatch are in it. It is left out where nothing is sent."
)


def _bounds_lines(case: Case) -> Iterator[str]:
    """What a bound may seem to contradict."""
    points = point_table(case)
    longer = points["network_s"] > points["bound_s"]
    if any(p.experiment.strategy.steps_may_differ for p in compress(case.points, longer)):
        yield _UNEQUAL_SHARES
    if left_out := left_out_text(case):
        yield left_out


#: Why a busiest link may need longer than the bound.
_UNEQUAL_SHARES = (
    "Of asynchronous workers, the busiest link carries the steps that each of them made. The bound "
    "is of steps that are divided so that it is the least."
)


def _explanation(report: CaseReport) -> PagePart:
    case = report.case
    causes = explanation_table(case)
    return PagePart(
        sentences=explanation_lines(case),
        tables=[
            TextTable(
                rows=causes,
                caption=explanation_note(case),
                folded=f"Parts of differences ({len(causes)})",
            ),
            TextTable(
                rows=meanings_table(case), folded="What the parts mean", wraps={"is": "long"}
            ),
        ],
    )


def _pop(report: CaseReport) -> PagePart:
    metrics = pop_table(report.case)
    return PagePart(tables=[TextTable(rows=metrics, caption=pop_note(report.case, metrics))])


def _timeline(report: CaseReport) -> PagePart:
    return PagePart(
        tables=[
            TextTable(
                rows=traced_table(report.traces),
                caption=f"A trace is of the launch with the median rate; open it at "
                f"https://{VIEWER}. Tracing has a price: the median traced step over the median "
                "measured one of the same run, of n launches the median [least, largest]. "
                "TensorFlow also runs a new function more slowly at first.",
                wraps={"trace": "path"},
            )
        ]
    )


def _what_was_run(report: CaseReport) -> PagePart:
    chosen = [("auto", exchange_sentence(report.exchanges))] if report.exchanges else []
    return PagePart(items=what_was_run(report.case) + chosen)


def _placement_row(item: PlacementPoint, unit: str) -> dict[str, str]:
    rates = estimate(item.point.rates).ends if len(item.point.rates) else (None, None, None)
    alone = item.point.experiment.num_ps == 1
    used = "as planned" if item.as_planned else _bytes_text(item.worst.bytes_per_server)
    return {
        "setting": item.point.setting.label,
        "workers": str(item.point.num_workers),
        "servers": str(item.point.experiment.num_ps),
        "planned bytes": _bytes_text(item.planned_bytes),
        "read back": used,
        "hottest over mean": NONE if alone else ratio(item.worst.max_over_mean),
        f"{unit}/s": f"{with_interval(number, *rates)} {item.point.mark}".rstrip(),
    }


def _bytes_text(loads: Sequence[int]) -> str:
    return " + ".join(f"{load:,}".replace(",", "\N{NO-BREAK SPACE}") for load in loads)


def pair_rows(case: Case, *, same_transport: bool = True) -> pd.DataFrame:
    """A row for each pair of synchronous settings, on the same transport or on different ones."""
    headings = _PAIRS if same_transport else _PAIRS_APART
    rows = pairs_of(case, same_transport=same_transport)
    return _rows([row.better_first() for row in rows], headings)


def side_rows(case: Case) -> pd.DataFrame:
    """A row for each two sides, or settings of one side alone, and why they are compared.

    Sentences tell of these; each two settings stand here once for what they have equally much of.
    So do settings of sides whose difference is explained, where no other table has them.
    """
    sides: dict[tuple[object, ...], Comparison] = {}
    rows = comparisons(case).rows
    known = {frozenset(row.points) for row in rows if row.kind is not Kind.MET}
    for row in rows:
        is_new = row.kind is Kind.MET and frozenset(row.points) not in known
        is_explained = is_new and row.outcome in (Outcome.FASTER, Outcome.SLOWER)
        if row.kind not in _OF_OTHER_TABLES or is_explained:
            sides.setdefault((frozenset(row.points), row.basis), row)
    return _rows([row.better_first() for row in sides.values()], _SIDES)


def changed_rows(case: Case) -> pd.DataFrame:
    """A row for each setting of the exchange beside the one that it is changed from.

    Of a ladder also what its rungs are called in the headline and in the figure.
    """
    rows = comparisons(case).of(Kind.CHANGED) if varies_exchange(case) else []
    told = _rows(rows, _CHANGED)
    if rungs := {point: rung.name for each in ladders(case) for rung, point in each.rungs}:
        told.insert(0, "rung", [rungs[row.first.best] for row in rows])
    return told


def _rows(told: Iterable[Comparison], headings: Mapping[str, str]) -> pd.DataFrame:
    rows = [
        {
            "kind": str(row.kind),
            "first": row.first.name,
            "second": row.second.name,
            "workers": each_text([n for side in row.sides for n in side.workers]),
            "ratio": _ratio_text(row),
            "n": str(min(row.decision.n_first, row.decision.n_second)),
            "p": _p_text(row.decision),
            "outcome": outcome_text(row.decision),
            "transports": transports_label(*(point.transport for point in row.points)),
        }
        for row in told
    ]
    return pd.DataFrame(rows, columns=list(headings)).rename(columns=headings)


def _ratio_text(row: Comparison) -> str:
    """With its level, where that is not the one of the heading: the pair of the headline."""
    main = comparisons(row.case).main
    level = main.level if main and {*main.points} == {*row.points} else ""
    told = factor_text(row.decision).replace("x", "", 1) if row.decision.ratio else NONE
    return told + f" ({level})" * bool(level)


def _p_text(decision: Decision) -> str:
    planned = decision.planned and decision.p_value is not None
    return f"{p_text(decision.p_value)}{' (planned)' * planned}"


def legend(case: Case) -> str:
    """What the columns of the table of results mean, for below it."""
    others = ", and what became of other attempts" * any(len(p.unusable) for p in case.points)
    lines = [f"ok/planned: launches that are ok, of those planned{others}."]
    if len(case.launches):
        shares = [name for name in map(str, report_table(case, "results")) if "/s per " in name]
        named = " and ".join(name.partition(" ")[2] for name in shares)
        divided = f"; {named}: divided by their number"
        lines.insert(
            0,
            f"{case.unit}/s: geometric mean with its 95 % interval (from three launches on)"
            f"{divided * bool(shares)}.",
        )
    if case.tokens_per_example is not None:
        lines.append(f"tokens/s: the mean, times {case.tokens_per_example} tokens of an example.")
    if on_several_hosts(case):
        lines.append("hosts: those of servers included.")
    if _is_marked(case):
        lines.append(f"{MARK} processors may have been the limit: see the warnings.")
    return " ".join(lines)


def scaling_lines(case: Case) -> list[str]:
    """What speed-ups and efficiencies rest on, and what a star says."""
    marked = f"{MARK} processors may have been the limit, of the point or of its base."
    return [*scaling_lines_of(case), *pairs_lines(case, BASES), *[marked] * _is_marked(case)]


def speedup_lines(case: Case) -> list[str]:
    """What the columns of the table of scaling mean; empty where there is none."""
    if not _has_speedups(case):
        return []
    single = "a single worker, with as many threads where that was measured"
    if case.shares_cores:
        single = "as many workers that do not communicate, times their number"
    shown = report_table(case, "scaling")
    told = [
        f"{capital(heading)}: the rate over that of {base}."
        for name, base in zip(BASES, (single, "one worker of the same setting"), strict=True)
        if (heading := heading_of(case, f"speedup_{name}")) in shown
    ]
    return [" ".join([*told, "Efficiency: speed-up over workers."])]


def _has_speedups(case: Case) -> bool:
    """Some base was measured."""
    return bool(point_table(case)[[f"base_{base}" for base in BASES]].notna().any(axis=None))


def unclaimed_lines(case: Case) -> list[str]:
    """Why cells of the table say that an efficiency is not claimed; empty if none does."""
    points = point_table(case)
    known = points[(points["launches"] > 0) & points["base_single"].notna()]
    starred = (known["marks_single"] != "").any()
    reasons = {
        "where processors may have been the limit, of a point or of its base": starred,
        "where one worker made far more steps than others": known["uneven"].any(),
    }
    where = ", and ".join(reason for reason, holds in reasons.items() if holds)
    return [f"Efficiency (base: {base_text(case)}) is not claimed {where}."] * bool(where)


def _is_marked(case: Case) -> bool:
    return MARK in "".join(point_table(case)["marks"])


#: Of every case: the anchor and the title of a page, and what it says.
CASE_PAGES: Mapping[tuple[str, str], Callable[[CaseReport], PagePart]] = {
    ("results", "Results"): _results,
    ("comparisons", "Comparisons"): _comparisons,
    ("scaling", "Scaling"): _scaling,
    ("placement", "Placement, planned and read back"): _placement,
    ("breakdown", "Where the time of a step goes"): _breakdown,
    ("explanation", "Why one setting is faster than another"): _explanation,
    ("pop", "POP metrics"): _pop,
    ("timeline", "One step by strategy"): _timeline,
    ("run", "What was run"): _what_was_run,
}
