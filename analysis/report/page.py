"""`report.html`: one file that holds the verdict, the table, the figures and how they came about.

Decides what the report says and in which order; how it looks is in the template.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from analysis.data.cases import Case
from analysis.data.hosts import host_rows
from analysis.data.load import Block, SweepResults, started
from analysis.derive.placement import PlacementPoint, placement_points
from analysis.figures.save import SavedFigure
from analysis.report.circumstances import busy_lines, mixed_lines
from analysis.report.network import Link, network_parts
from analysis.report.table import (
    HEADINGS,
    NONE,
    estimate_text,
    legend,
    ratio_text,
    report_tables,
    rows,
)
from analysis.report.verdict import Verdict
from analysis.report.what_was_run import what_was_run
from analysis.stats.pairs import Pair, all_pairs, pairs_apart
from analysis.stats.statistics import CONFIDENCE, MIN_EFFECT, MIN_LAUNCHES
from analysis.stats.tuning import Tuned, is_tuning, tuned_points, without_tuned
from analysis.wording import count_text, rate_text
from ps_allreduce.record.files import RunFiles, write_atomically
from ps_allreduce.record.provenance import Provenance
from ps_allreduce.record.records import RunRecord, Status

TEMPLATES = Path(__file__).resolve().parent / "templates"


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
    write_atomically(path, render_report(results, cases).encode())


def render_report(results: SweepResults, cases: Sequence[CaseReport]) -> str:
    """The page as text."""
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["data_uri"] = data_uri
    records = [run.record for run in results.block.runs]
    return environment.get_template("report.html.j2").render(
        results=results,
        cases=[_case_context(item) for item in cases],
        unusable=[_unusable_row(record) for record in records if record.status is not Status.OK],
        networks=[
            {"title": part.title, "rows": part.rows, "links": [_link_row(x) for x in part.links]}
            for part in network_parts(records)
        ],
        hosts=host_rows(records),
        warnings=warnings(results),
        provenance=provenance_rows(results.block),
        blocks=[_block_context(block) for block in results.older_blocks],
        confidence=round(CONFIDENCE * 100),
        min_launches=MIN_LAUNCHES,
        min_effect=round(MIN_EFFECT * 100),
    )


def data_uri(path: Path) -> str:
    """An SVG file as a value of an `img` element's `src`."""
    return "data:image/svg+xml;base64," + base64.b64encode(path.read_bytes()).decode()


def _case_context(item: CaseReport) -> dict[str, object]:
    case = item.case
    untuned = without_tuned(case)  # pairs of all of them would be hundreds
    return {
        "name": case.name,
        "headline": item.verdict.headline,
        "details": item.verdict.details,
        "tables": _tables(case),
        "legend": legend(case),
        "figures": item.figures,
        "placements": [_placement_row(point) for point in placement_points(case)],
        "deviations": [
            f"{point.point.experiment.title}: {line}"
            for point in placement_points(case)
            for line in point.deviations
        ],
        "tuned": [_tuned_row(one) for one in tuned_points(case)] if is_tuning(case) else [],
        "without_tuned": untuned is not case,
        "pairs": [_pair_row(pair) for pair in all_pairs(untuned)],
        "pairs_apart": [[*_pair_row(pair), pair.label] for pair in pairs_apart(untuned)],
        "settings": what_was_run(case),
    }


def _tables(case: Case) -> list[dict[str, object]]:
    found = rows(case)
    return [
        {
            "title": title,
            "headings": [HEADINGS[name] for name in names],
            "rows": [[getattr(row, name) for name in names] for row in found],
        }
        for title, names in report_tables(case).items()
    ]


def _placement_row(item: PlacementPoint) -> list[str]:
    point = item.point
    return [
        point.setting.label,
        str(point.num_workers),
        str(point.experiment.num_ps),
        _bytes_text(item.planned_bytes),
        "as planned" if item.as_planned else _bytes_text(item.used_bytes),
        f"{item.max_over_mean:.2f}",
        estimate_text(item.throughput),
    ]


def _bytes_text(loads: Sequence[int]) -> str:
    return " + ".join(f"{load:,}".replace(",", "\N{NO-BREAK SPACE}") for load in loads)


def _tuned_row(item: Tuned) -> list[str]:
    return [
        item.point.setting.label,
        item.usual.setting.label,
        str(item.point.num_workers),
        ratio_text(item.comparison),
        str(min(item.comparison.n_first, item.comparison.n_second)),
        NONE if item.adjusted_p is None else f"{item.adjusted_p:.2g}",
        item.outcome.value,
    ]


def _pair_row(pair: Pair) -> list[str]:
    return [
        pair.first.setting.label,
        pair.second.setting.label,
        str(pair.first.num_workers),
        ratio_text(pair.comparison),
        f"{pair.adjusted_p:.2g}",
        pair.outcome.value,
    ]


def _link_row(link: Link) -> list[str]:
    return [
        link.source,
        link.target,
        rate_text(link.bits_per_s),
        rate_text(link.lowest),
        f"{link.round_trip_s * 1e3:.3g}",
        str(link.count),
    ]


def _unusable_row(record: RunRecord) -> list[str]:
    log = RunFiles.of(Path(), record.experiment_id, record.repetition, record.attempt).log
    return [
        record.experiment.title,
        f"{record.repetition}-{record.attempt}",
        record.status.value.replace("_", " "),
        record.reason,
        log.as_posix(),
    ]


def warnings(results: SweepResults) -> list[str]:
    """Doubts of the runs with their number, and what is missing on disk."""
    records = [run.record for run in results.block.runs]
    lines = _counted(line for record in records for line in record.warnings)
    lines += busy_lines(records) + mixed_lines(records)
    missing = [run.path for run in results.block.runs if run.raw_missing]
    if missing:
        lines.append(
            f"Raw timings are missing beside {count_text(len(missing), 'record')}, for instance "
            f"{missing[0]}; their figures are those that the records hold."
        )
    return lines


def _counted(lines: Iterable[str]) -> list[str]:
    """Every line once, with its number; lines that differ in figures only count as the same."""
    found: dict[str, list[str]] = {}
    for line in lines:
        found.setdefault(re.sub(r"[0-9.]+", "0", line), []).append(line)
    groups = sorted(found.values(), key=len, reverse=True)
    return [
        f"{group[0]} ({count_text(len(group), 'run')}{' like it' * (len(set(group)) > 1)})"
        for group in groups
    ]


def provenance_rows(block: Block) -> list[tuple[str, str]]:
    """The runs of a block, the load they began under, and what they were made with."""
    found = block.provenance
    loads = [run.record.provenance.load_average for run in block.runs]
    times = sorted(started(run.record) for run in block.runs)
    first, last = (f"{moment:%Y-%m-%d %H:%M:%S %Z}" for moment in (times[0], times[-1]))
    return [
        ("block", block.fingerprint),
        ("runs", f"{len(block.runs)}, from {first} to {last}"),
        ("load average before runs", f"{min(loads):.2f} to {max(loads):.2f} (one minute)"),
        ("command of the last run", found.command),
        *_software_and_machine(found),
    ]


def _software_and_machine(found: Provenance) -> list[tuple[str, str]]:
    usable = ", ".join(str(core) for core in found.affinity)
    return [
        ("commit", found.commit),
        ("versions", ", ".join(f"{name} {value}" for name, value in found.versions.items())),
        ("environment", found.environment),
        ("settings", ", ".join(f"{name}={value}" for name, value in found.settings.items())),
        ("started on", found.host),
        ("system", found.system),
        ("processor", f"{found.cpu_model}, {found.cpu_count} in all, usable {usable}"),
        ("vector extensions", ", ".join(found.cpu_flags) or "none known"),
        ("memory", f"{found.memory_bytes / 1e9:.1f} GB"),
    ]


def _block_context(block: Block) -> dict[str, object]:
    return {
        "fingerprint": block.fingerprint,
        "runs": len(block.runs),
        "newest": f"{block.newest:%Y-%m-%d %H:%M:%S %Z}",
        "differences": block.differences,
    }
