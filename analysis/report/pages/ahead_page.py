"""What more hosts would do: sliders over the closed form, and pictures that need no script.

Decides that a sweep which calibrates has this page, and what stands below its pictures.
"""

from __future__ import annotations

import json
from pathlib import Path

from analysis.data.blocks import SweepResults
from analysis.figures.ahead import plot_efficiencies, plot_fastest, plot_servers_needed
from analysis.figures.save import save_with_data
from analysis.predict.calibration import families, usable
from analysis.predict.calibration_file import NAME, CalibrationFile, save_calibration
from analysis.predict.predictions import FURTHEST, Teller
from analysis.predict.sliders import Sliders, efficiencies, fastest, servers_needed, sliders
from analysis.report.pages.page_parts import Page, PagePart
from analysis.wording import rate_text
from ps_allreduce.errors import UserError

#: The sweep that is made for this.
CALIBRATE = "calibrate"

ANCHOR, TITLE = "ahead", "What more hosts would do"


def ahead_page(results: SweepResults) -> Page | None:
    """The page, whose figures are saved; None for other sweeps, and where nothing can be told.

    Raises:
        UserError: no permission, or no space left.
    """
    if results.name != CALIBRATE:
        return None
    try:
        known = families(usable(results.block.records))
    except UserError:  # too little was measured
        return None
    tellers = [Teller.of(each) for each in known if each.largest.strategy.synchronous]
    shown, folder = sliders(tellers), results.files.folder
    if shown is None:
        return None
    source = (
        f"{results.name}, {results.block.provenance.commit}, {results.block.records[-1].started_at}"
    )
    save_calibration(folder / NAME, CalibrationFile(source=source, settings=tuple(tellers)))
    return _page_of(shown, folder, results.name)


def _source(results: SweepResults) -> str:
    """Where and when it was measured."""
    last, known = results.block.records[-1], results.block.provenance
    own = last.experiment
    machine = f"{known.cpu_count} processors {known.cpu_model}"
    day = last.started_at[:10]
    return f"{own.workload.model.name}, {own.launcher}, {machine}, {day}, commit {known.commit}"


def _page_of(shown: Sliders, folder: Path, name: str) -> Page:
    """Sliders and pictures, which are saved in the folder."""
    settings, at = [each.name for each in shown.settings], rate_text(shown.bits_per_s)
    cells, needed, shares = fastest(shown), servers_needed(shown), efficiencies(shown)
    most = FURTHEST * shown.calibrated
    drawn = [
        (
            "fastest",
            "Which setting is fastest",
            f"With the best number of servers, {shown.batch} {shown.unit} in a worker's step; grey "
            f"where intervals overlap. Beyond {most} workers nothing is said.",
            plot_fastest(cells, settings),
            cells,
        ),
        (
            "servers-needed",
            "Servers needed",
            f"The fewest with 95 % of the rate with the best number, links of {at}. Hollow: bounds "
            "are compared, not rates.",
            plot_servers_needed(needed, settings),
            needed,
        ),
        (
            "efficiency-ahead",
            "Efficiency",
            f"Rate over that of as many workers that send nothing, links of {at}. Bands: 90 %. "
            f"Thin lines: what is possible at most; beyond {most} workers only that is said.",
            plot_efficiencies(shares),
            shares,
        ),
    ]
    figures = [
        save_with_data(figure, data, (title, f"{title}, {name}", caption), folder / file, ANCHOR)
        for file, title, caption, figure, data in drawn
        if len(data)
    ]
    part = PagePart(
        sentences=list(_sentences(shown)),
        figures=figures,
        sliders=json.dumps(shown.to_page(), separators=(",", ":")).replace("<", "\\u003c"),
    )
    return Page(anchor=ANCHOR, title=TITLE, parts=[part])


def _sentences(shown: Sliders) -> list[str]:
    told = [
        "These are predictions from this sweep, each with its 90 % interval; make predict and make "
        "check-predictions hold such ones against launches.",
        f"One worker on each host, servers beside workers; measured with up to {shown.calibrated}. "
        f"{NAME} holds what was learned: make advise RESULTS={NAME} answers from it elsewhere.",
    ]
    if any(each.form.shares_cores for each in shown.settings):
        told.append(
            "These hosts are emulated on one machine and share its processors, also with more of "
            "them: where computation limits, hosts of your own would do better."
        )
    unknown = dict.fromkeys(text for each in shown.settings for text in each.teller.unknown)
    if unknown:
        told.append(f"Not known, which widens intervals: {'; '.join(unknown)}.")
    return told
