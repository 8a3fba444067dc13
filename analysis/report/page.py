"""`report.html`: one file that holds the verdict, the table, the figures and how they came about.

Decides what the report says and in which order; how it looks is in the template.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from analysis.data.blocks import Block, SweepResults
from analysis.data.cases import Case
from analysis.data.columns import NO_TEXT
from analysis.figures.save import SavedFigure
from analysis.report.circumstances import busy_lines, mixed_lines
from analysis.report.explanation import EXPLANATION_NOTE, explanation_sentence, explanation_table
from analysis.report.network_items import host_items, network_parts
from analysis.report.sizes import each_text
from analysis.report.table import legend, report_tables
from analysis.report.verdict import Verdict
from analysis.report.what_was_run import Items, what_was_run
from analysis.report.where_time_goes import (
    PARTS_NOTE,
    POP_NOTE,
    parts_table,
    pop_table,
    tasks_table,
)
from analysis.stats.causes import explanations
from analysis.stats.decision import MARGIN, Decision, Outcome
from analysis.stats.decisions import Pair, all_pairs, changed_points
from analysis.stats.points import PlacementPoint, placement_points
from analysis.stats.setting_pairs import varies_exchange, without_changed
from analysis.stats.statistics import CONFIDENCE, MIN_LAUNCHES, estimate
from analysis.wording import NONE, count_text, missing_text, number, ratio, with_interval
from ps_allreduce.record.exchanges import ExchangeChoice, exchange_sentence
from ps_allreduce.record.files import write_atomically
from ps_allreduce.record.records import Status

TEMPLATES = Path(__file__).resolve().parent / "templates"


_COMPARED = {"workers": "workers", "ratio": f"ratio [{CONFIDENCE * 100:.0f} %]"}

#: Columns of the tables of pairs, and their headings.
_PAIRS = {"first": "first", "second": "second", **_COMPARED, "p": "p (Holm)", "outcome": "first is"}
_PAIRS_APART = {**_PAIRS, "transports": "transports"}
_CHANGED = {"first": "setting", "second": "changed from", **_COMPARED, "n": "n"}
_CHANGED |= {"p": "p (Holm)", "outcome": "setting is"}


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseReport:
    """What is reported about one case."""

    case: Case
    verdict: Verdict
    figures: Sequence[SavedFigure]


def write_report(path: Path, results: SweepResults, cases: Sequence[CaseReport]) -> None:
    """Write the report of a sweep.

    Raises:
        UserError: no permission, or no space left.
    """
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"data_uri": data_uri, "moment": moment_text}
    block = results.block
    page = environment.get_template("report.html.j2").render(
        results=results,
        num_planned=len(results.files.planned or ()),
        cases=[_case_context(item, results.files.exchanges) for item in cases],
        unusable=_unusable(results),
        networks=network_parts(block.table, block.records),
        hosts=host_items(block.records),
        warnings=warnings(results),
        provenance=provenance_items(block),
        confidence=round(CONFIDENCE * 100),
        min_launches=MIN_LAUNCHES,
        margin=round(MARGIN * 100),
        units=" and ".join(dict.fromkeys(item.case.unit for item in cases)),
    )
    write_atomically(path, page.encode(errors=NO_TEXT))


def data_uri(path: Path) -> str:
    """An SVG file as a value of an `img` element's `src`."""
    return "data:image/svg+xml;base64," + base64.b64encode(path.read_bytes()).decode()


def moment_text(moment: pd.Timestamp) -> str:
    """A moment with its zone, to the second."""
    return moment.strftime("%Y-%m-%d %H:%M:%S %Z")


def _case_context(item: CaseReport, chosen: Sequence[ExchangeChoice]) -> dict[str, object]:
    case, placed = item.case, placement_points(item.case)
    chosen = [choice for choice in chosen if choice.model == case.conditions["model"]]
    return {
        "about": case,
        "verdict": item.verdict,
        "tables": report_tables(case),
        "legend": legend(case),
        "figures": item.figures,
        "placements": pd.DataFrame([_placement_row(each, case.unit) for each in placed]),
        "deviations": [
            f"{each.point.experiment.title}: {line}" for each in placed for line in each.deviations
        ],
        "changed": _pair_table(changed_points(case) if varies_exchange(case) else (), _CHANGED),
        "without_changed": without_changed(case) is not case,
        "pairs": _pair_table(all_pairs(case), _PAIRS),
        "pairs_apart": _pair_table(all_pairs(case, same_transport=False), _PAIRS_APART),
        "where": {
            "explanations": [explanation_sentence(case, told) for told in explanations(case)],
            "causes": explanation_table(case),
            "causes_note": EXPLANATION_NOTE,
            "parts": parts_table(case),
            "parts_note": PARTS_NOTE,
            "efficiencies": pop_table(case),
            "efficiencies_note": POP_NOTE,
            "tasks": tasks_table(case),
        },
        "run": what_was_run(case) + ([("auto", exchange_sentence(chosen))] if chosen else []),
    }


def _pair_table(pairs: Iterable[Pair], headings: Mapping[str, str]) -> pd.DataFrame:
    """A row for each pair, as text."""
    rows = [
        {
            "first": pair.first.setting.label,
            "second": pair.second.setting.label,
            "workers": each_text([pair.first.num_workers, pair.second.num_workers]),
            "ratio": with_interval(ratio, *pair.decision.ends),
            "n": str(min(pair.decision.n_first, pair.decision.n_second)),
            "p": _p_text(pair),
            "outcome": _outcome_text(pair.decision),
            "transports": pair.label,
        }
        for pair in pairs
    ]
    return pd.DataFrame(rows, columns=list(headings)).rename(columns=headings)


def _p_text(pair: Pair) -> str:
    p_value = pair.decision.p_value
    return NONE if p_value is None else f"{p_value:.2g}{' (planned)' * pair.planned}"


def _outcome_text(decision: Decision) -> str:
    if decision.outcome is Outcome.UNDECIDED:
        return f"{decision.outcome}: {missing_text(decision)}"
    return f"{decision.outcome}{': ' * bool(decision.doubt)}{decision.doubt}"


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


def _unusable(results: SweepResults) -> pd.DataFrame:
    """Attempts that did not end well, where their logs lie, and why."""
    table = results.block.table
    bad = table[table["status"] != Status.OK]
    titles = {r.experiment_id: r.experiment.title for r in results.block.records}
    return pd.DataFrame(
        {
            "point": bad["experiment_id"].map(titles),
            "run": bad["run_id"].str.split("/").str[-1],
            "status": bad["status"].astype("string").str.replace("_", " "),
            "reason": bad["reason"],
            "log": bad["record_path"].str.replace(r"json$", "log", regex=True),
        }
    )


def warnings(results: SweepResults) -> list[str]:
    """Doubts of the runs with their number, and what is missing on disk."""
    table, records = results.block.table, results.block.records
    in_order = [results.files.records[path] for path in table.index]
    lines = _counted(line for record in in_order for line in record.warnings)
    lines += busy_lines(records) + mixed_lines(records)
    missing = table.loc[(table["status"] == Status.OK) & ~table["raw_timings"], "record_path"]
    if len(missing):
        lines.append(
            f"Raw timings are missing beside {count_text(len(missing), 'record')} "
            f"({', '.join(missing)}); their figures are those that the records hold."
        )
    return lines


def _counted(lines: Iterable[str]) -> list[str]:
    """Every line once, with its number; lines that differ in figures only count as the same."""
    alike: dict[str, list[str]] = {}
    for line in lines:
        alike.setdefault(re.sub(r"[0-9.]+", "0", line), []).append(line)
    groups = sorted(alike.values(), key=len, reverse=True)
    return [
        f"{group[0]} ({count_text(len(group), 'run')}{' like it' * (len(set(group)) > 1)})"
        for group in groups
    ]


def _range_text(shares: pd.Series) -> str:
    return f"{shares.min():.1%} to {shares.max():.1%}" if len(shares) else "not known"


def provenance_items(block: Block) -> Items:
    """The runs of a block, what others used of their hosts, and what they were made with."""
    made_with = block.provenance
    foreign, begun = block.table["foreign_load"].dropna(), block.table["started_at"]
    ended = block.table["finished_at"]
    cores = ", ".join(str(core) for core in made_with.affinity)
    return [
        ("block", block.fingerprint),
        (
            "runs",
            f"{len(begun)}, from {moment_text(begun.min())} to {moment_text(ended.max())}",
        ),
        ("processor time that others used while measuring", _range_text(foreign)),
        ("command of the last run", made_with.command),
        ("commit", ", ".join(block.table["commit"].unique())),
        ("measured program", made_with.program),
        ("versions", ", ".join(f"{name} {value}" for name, value in made_with.versions.items())),
        ("environment", made_with.environment),
        ("settings", ", ".join(f"{name}={value}" for name, value in made_with.settings.items())),
        ("started on", made_with.host),
        ("system", made_with.system),
        ("processor", f"{made_with.cpu_model}, {made_with.cpu_count} in all, usable {cores}"),
        ("vector extensions", ", ".join(made_with.cpu_flags) or "none known"),
        ("memory", f"{made_with.memory_bytes / 1e9:.1f} GB"),
    ]
