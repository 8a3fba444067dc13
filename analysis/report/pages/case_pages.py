"""The pages of a report about a case: what each of them holds.

Decides their order, and which tables and sentences stand together.  What these say is decided where
they are made.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import pandas as pd

from analysis.report.explanation import (
    EXPLANATION_NOTE,
    explanation_sentence,
    explanation_table,
    meanings_table,
)
from analysis.report.pages.page_parts import CaseReport, PagePart, TextTable
from analysis.report.sentences.traced import VIEWER, traced_table
from analysis.report.tables.comparisons import CORRECTED, changed_rows, pair_rows
from analysis.report.tables.table import legend, report_table, scaling_lines, unclaimed_lines
from analysis.report.tables.what_was_run import what_was_run
from analysis.report.tables.where_time_goes import (
    PARTS_NOTE,
    POP_NOTE,
    parts_table,
    pop_table,
    tasks_table,
)
from analysis.stats.causes import explanations
from analysis.stats.pairs.setting_pairs import without_changed
from analysis.stats.points import PlacementPoint, placement_points
from analysis.stats.statistics import estimate
from analysis.wording import number, ratio, with_interval
from ps_allreduce.record.choices import exchange_sentence

NOTHING_DIFFERS = (
    "By the rule of decision no two settings are known to differ, so there is nothing to explain."
)


def _results(report: CaseReport) -> PagePart:
    case = report.case
    changed = TextTable(
        rows=changed_rows(case),
        title="Changed settings",
        caption=f"Each setting against the one that it is changed from: ratio of {case.unit}/s "
        f"with its interval. {CORRECTED}",
    )
    return PagePart(
        tables=[TextTable(rows=report_table(case, "results")), changed],
        notes=[legend(case)],
    )


def _comparisons(report: CaseReport) -> PagePart:
    case = report.case
    pairs, apart = pair_rows(case), pair_rows(case, same_transport=False)
    left_out = (
        "Pairs are without the settings that the table of changed settings holds against theirs."
    )
    return PagePart(
        sentences=report.verdict.details,
        tables=[
            TextTable(
                rows=pairs,
                caption=f"Ratio of {case.unit}/s, first over second, with its interval. "
                f"{CORRECTED}",
                folded=f"All pairs of synchronous settings on the same transport ({len(pairs)})",
            ),
            TextTable(
                rows=apart,
                caption="What sets two settings on different transports apart may be the "
                "transport.",
                folded=f"Pairs on different transports ({len(apart)}), no part of the verdict",
            ),
        ],
        notes=[left_out] if without_changed(case) is not case else [],
    )


def _scaling(report: CaseReport) -> PagePart:
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
        sentences=astray or ["No variable was elsewhere than planned."] * bool(placed),
        tables=[
            TextTable(
                rows=rows,
                caption="Trainable bytes per parameter server. Hottest over mean: 1.00 is "
                "balanced.",
                wraps={"planned bytes": "bytes", "read back": "bytes"},
            )
        ],
    )


def _breakdown(report: CaseReport) -> PagePart:
    case = report.case
    tasks = tasks_table(case)
    return PagePart(
        tables=[
            TextTable(rows=parts_table(case), caption=PARTS_NOTE),
            TextTable(
                rows=tasks,
                caption="Means over launches; parts of a worker's mean step, trainable bytes of a "
                "server, processor time in a step of all workers.",
                folded=f"Every task ({len(tasks)})",
            ),
            TextTable(
                rows=report_table(case, "steps"),
                title="Steps",
                caption="Means over steps, workers and launches: compute, exposed communication "
                "and input wait add up to the step. Exposed communication is the rest of a step, "
                "so updates and dispatch are in it; where nothing is sent, it is left out.",
                wraps={"steps of launches": "long"},
            ),
            TextTable(rows=report_table(case, "bounds"), title="Bounds by the links"),
        ]
    )


def _explanation(report: CaseReport) -> PagePart:
    case = report.case
    causes = explanation_table(case)
    told = [explanation_sentence(case, each) for each in explanations(case)]
    return PagePart(
        sentences=told or [NOTHING_DIFFERS],
        tables=[
            TextTable(
                rows=causes,
                caption=EXPLANATION_NOTE,
                folded=f"Parts of all differences ({len(causes)})",
            ),
            TextTable(
                rows=meanings_table(case), folded="What the parts mean", wraps={"is": "long"}
            ),
        ],
    )


def _pop(report: CaseReport) -> PagePart:
    return PagePart(tables=[TextTable(rows=pop_table(report.case), caption=POP_NOTE)])


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
    used = "as planned" if item.as_planned else _bytes_text(item.worst.bytes_per_server)
    return {
        "setting": item.point.setting.label,
        "workers": str(item.point.num_workers),
        "servers": str(item.point.experiment.num_ps),
        "planned bytes": _bytes_text(item.planned_bytes),
        "read back": used,
        "hottest over mean": ratio(item.worst.max_over_mean),
        f"{unit}/s": with_interval(number, *rates),
    }


def _bytes_text(loads: Sequence[int]) -> str:
    return " + ".join(f"{load:,}".replace(",", "\N{NO-BREAK SPACE}") for load in loads)


#: Of every case: the anchor and the title of a page, and what it says.
CASE_PAGES: Mapping[tuple[str, str], Callable[[CaseReport], PagePart]] = {
    ("results", "Results"): _results,
    ("comparisons", "Comparisons"): _comparisons,
    ("scaling", "Scaling"): _scaling,
    ("placement", "Placement, planned and read back"): _placement,
    ("breakdown", "Where the time of a step goes"): _breakdown,
    ("explanation", "Why one setting is faster than another"): _explanation,
    ("pop", "POP metrics"): _pop,
    ("timeline", "One step of each strategy"): _timeline,
    ("run", "What was run"): _what_was_run,
}
