"""A study from the literature beside the sweep that repeats it: one table.

Decides how both are held against each other: by efficiency on a single worker, because machines
differ in everything else; and which points make a curve.  Which study is whose, and what sets the
two apart, is decided in the module of each study.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from analysis.data.cases import Case, Point
from analysis.stats.points import point_table
from analysis.wording import number, ratio, with_interval

FOLDER = Path(__file__).resolve().parent

#: Columns of the table of points.
EFFICIENCY = ["efficiency_single", "efficiency_single_low", "efficiency_single_high"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedStudy:
    """A published study, and which points of a sweep repeat what of it.

    Attributes:
        name: of the sweep.
        system: what was measured there, in a legend.
        source: where the numbers are from.
        csv: file beside this module, a row for each number of workers: workers, images_per_sec,
            num_ps, mode.
        series: of the sweep by their names; each tells a point that belongs to it.
        differences: what sets the sweep apart from the original, a sentence each.
    """

    name: str
    system: str
    source: str
    csv: str
    series: Mapping[str, Callable[[Point], bool]]
    differences: tuple[str, ...]

    def rows(self) -> pd.DataFrame:
        """The published rows, with the efficiency on the row of one worker."""
        rows = pd.read_csv(FOLDER / self.csv)
        base = rows.loc[rows["workers"] == 1, "images_per_sec"].iloc[0]
        return rows.assign(efficiency=rows["images_per_sec"] / (rows["workers"] * base))


def sweep_of(case: Case) -> str:
    """The name of the sweep that a case is of."""
    return next(record.sweep for point in case.points for record in point.records)


def table_beside(study: PublishedStudy, case: Case) -> pd.DataFrame:
    """The original's table, and beside it what the sweep measured at as many workers; text."""
    told = point_table(case)
    series = series_of(study, case)
    published = {row["workers"]: row for row in study.rows().to_dict("records")}
    counts = sorted({*published, *(p.num_workers for own in series.values() for p in own)})
    return pd.DataFrame(
        [
            {
                "workers": str(count),
                **_published_cells(published.get(count)),
                **{name: _own_cell(case, told, points, count) for name, points in series.items()},
            }
            for count in counts
        ]
    )


def _published_cells(row: Mapping[Hashable, Any] | None) -> dict[str, str]:
    if row is None:
        return dict.fromkeys(("published images/s", "published efficiency", "there"), "")
    return {
        "published images/s": number(row["images_per_sec"]),
        "published efficiency": ratio(row["efficiency"]),
        "there": f"{row['mode']}, {row['num_ps']} ps",
    }


def _own_cell(case: Case, told: pd.DataFrame, points: list[Point], workers: int) -> str:
    point = next((each for each in points if each.num_workers == workers), None)
    if point is None:
        return ""
    centre, low, high = map(float, told.loc[case.points.index(point), EFFICIENCY])
    if math.isnan(centre):
        return "none claimed"
    servers = point.experiment.num_ps
    with_servers = f", {servers} ps" if servers else ""
    return with_interval(ratio, centre, low, high) + with_servers


def series_of(study: PublishedStudy, case: Case) -> dict[str, list[Point]]:
    """The points of every series, by workers; a single server stands in where there is no other."""
    return {name: [*_of_series(belongs, case)] for name, belongs in study.series.items()}


def _of_series(belongs: Callable[[Point], bool], case: Case) -> Iterator[Point]:
    for workers in sorted({point.num_workers for point in case.points}):
        points = [point for point in case.points if point.num_workers == workers]
        own = [point for point in points if belongs(point)]
        alone = [p for p in points if p.experiment.num_ps == 1 or p.setting.traits.max_workers == 1]
        yield from (own or alone)[:1]
