"""Which figures a case gets, and what is said below them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from analysis.data.cases import Case
from analysis.figures.against_workers import (
    efficiency_data,
    plot_against_packs,
    plot_against_servers,
    plot_efficiency,
    plot_throughput,
    rate_data,
)
from analysis.figures.bars import (
    breakdown_data,
    explanation_data,
    placement_data,
    plot_breakdown,
    plot_explanation,
    plot_placement,
)
from analysis.figures.changes import exchange_data, ladder_data, plot_exchange, plot_ladder
from analysis.figures.contenders import contenders_data, plot_contenders
from analysis.figures.step_timeline import plot_timeline, timeline_data
from analysis.figures.style import save_figure
from analysis.stats.points import left_out_text, point_table
from analysis.stats.setting_pairs import without_changed
from ps_allreduce.point.workload import Scaling
from ps_allreduce.record.files import write_atomically

_LAUNCHES = (
    "Small circles: one launch each. Large markers: geometric means with 95 % intervals, from "
    "three launches on; an arrow marks an interval that leaves the axes."
)
_COUNTS = "Numbers such as 2/3: launches that are ok, of those planned."
_COUNTS_BESIDE_LINES = (
    "Points side by side are of one number of workers. Numbers such as 2/3: launches that are ok, "
    "of those planned; beside lines only where an attempt was not ok."
)
_STARS = (
    " A star says that the processors may have been the limit, of the point or of its base: such "
    "points claim no efficiency."
)

_SCALED = {
    Scaling.WEAK: "Scaling is weak: each worker keeps its batch, so the global batch grows with "
    "the workers.",
    Scaling.STRONG: "Scaling is strong: all workers share the batch of a single one.",
}

_SEVERAL = (
    "Doublings of workers are equally far apart. Where settings have axes of their own, those that "
    "exchange nothing are left out; the table has them."
)

_LEFT_OUT = " Other settings have a figure of their own."

_BOUNDS = (
    " A stroke marks the bound that the links set, with perfect overlap; thin lines join those of "
    "points that are joined. Points on one host have none."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FigureKind:
    """A sort of figure.

    Attributes:
        plot: returns None where a case has nothing to show.
        data: what is drawn, as a table; asked only for cases that have something to show.
        page: of the report, by its anchor.
        shows_changed: points with many different settings of the exchange can be told apart in it.
        shows_bounds: the bounds of points stand beside them.
        tells_scaling: the caption says what becomes of the batch with more workers.
    """

    name: str
    title: str
    caption: str
    plot: Callable[[Case], Figure | None]
    data: Callable[[Case], pd.DataFrame]
    page: str = "results"
    shows_changed: bool = False
    shows_bounds: bool = False
    tells_scaling: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedFigure:
    """A figure on disk.

    Attributes:
        described: what a reader hears who does not see it.
        page: of the report, by its anchor.
    """

    title: str
    caption: str
    described: str
    page: str
    png: Path
    svg: Path
    pdf: Path
    csv: Path

    @property
    def files(self) -> list[str]:
        """Names of the same figure in other formats, and of its data."""
        return [path.name for path in (self.png, self.svg, self.pdf, self.csv)]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DrawnFigure:
    """A figure, and what is drawn in it as a table.

    Attributes:
        name: of its files.
        title, caption: above and below it.
    """

    name: str
    title: str
    caption: str
    figure: Figure
    data: pd.DataFrame

    def save(self, folder: Path, of: str, page: str) -> SavedFigure:
        """Write the figure in all formats, and its data as CSV.

        Args:
            of: whose it is, for a reader who does not see it.
            page: of the report, by its anchor.

        Raises:
            UserError: no permission, or no space left.
        """
        csv = folder / f"{self.name}.csv"
        write_atomically(csv, self.data.to_csv(index=False).encode())
        return SavedFigure(
            title=self.title,
            caption=self.caption,
            described=f"{self.title}, {of}. All values are in {csv.name} and in the tables of "
            "this report.",
            page=page,
            csv=csv,
            **save_figure(self.figure, folder, self.name),
        )


KINDS = (
    FigureKind(
        name="settings",
        title="What the verdict compares, and every setting beside it",
        caption="Above: what the verdict compares, on an axis that need not begin at 0. Below: "
        "every setting that exchanges gradients, with as many workers as one of these. "
        "Asynchronous settings do not compute the same as synchronous ones and stand apart. "
        f"{_LAUNCHES} {_COUNTS}",
        plot=plot_contenders,
        shows_bounds=True,
        shows_changed=True,
        data=contenders_data,
    ),
    FigureKind(
        name="throughput",
        title="Throughput",
        caption=f"{_LAUNCHES} {_COUNTS_BESIDE_LINES} Dotted: workers times the rate of strategy "
        "single, where workers have cores of their own. "
        "Asynchronous settings (ps_async, stock_ps) do not compute the same as synchronous ones. "
        f"stock_ps and stock_allreduce are TensorFlow as it ships. {_SEVERAL}",
        plot=plot_throughput,
        shows_bounds=True,
        data=rate_data,
    ),
    FigureKind(
        name="efficiency",
        title="Efficiency",
        caption="Speed-up on strategy single, over workers; where workers share cores, the rate "
        f"over that of as many workers that do not communicate. {_LAUNCHES} "
        f"{_COUNTS_BESIDE_LINES} Where nothing is claimed, the reason stands on the row, or a star "
        f"at the bottom. {_SEVERAL}",
        plot=plot_efficiency,
        shows_bounds=True,
        tells_scaling=True,
        data=efficiency_data,
        page="scaling",
    ),
    FigureKind(
        name="exchange",
        title="What each setting of the exchange changes",
        caption="Each row is a setting of the exchange, compared with the setting of the title, by "
        f"launches of the same turn where both have it. {_LAUNCHES} Intervals are "
        f"corrected for their number (Holm). Hollow markers: not decided. {_COUNTS}",
        plot=plot_exchange,
        data=exchange_data,
        shows_changed=True,
    ),
    FigureKind(
        name="ladder",
        title="From TensorFlow as it ships to the suite's defaults",
        caption="Each rung adds one change to the rung above it; the suite's step also takes a "
        "thread less, where a worker has several cores. Beside a rung is the ratio of both "
        "rates, by launches of the same turn where both have it, with an interval that is "
        "corrected for the number of comparisons (Holm). Where a model has no batch norm, there "
        f"is no rung for its statistics. {_LAUNCHES} Hollow markers: whether the rung brings "
        "anything is not decided.",
        plot=plot_ladder,
        data=ladder_data,
        shows_changed=True,
    ),
    FigureKind(
        name="servers",
        title="Throughput against parameter servers",
        caption=f"{_LAUNCHES} Asynchronous settings do not compute the same as synchronous ones "
        "and stand apart. A grey dashed line across, where there is one, is all-reduce with as "
        "many workers.",
        plot=plot_against_servers,
        data=rate_data,
    ),
    FigureKind(
        name="packs",
        title="Throughput against bytes per pack",
        caption="All-reduce with TensorFlow's own packs, and in buckets; sizes stand at equal "
        f"distances. {_LAUNCHES}",
        plot=plot_against_packs,
        data=rate_data,
    ),
    FigureKind(
        name="placement",
        title="Bytes per server, and throughput",
        caption="Trainable bytes on each parameter server, read back from the devices: the hottest "
        "server first, and at the top the placement whose hottest server holds least. The number "
        "beside a bar is the hottest server's load over the mean; 1.00 is balanced. "
        f"{_LAUNCHES}",
        plot=plot_placement,
        shows_bounds=True,
        data=placement_data,
        page="placement",
    ),
    FigureKind(
        name="breakdown",
        title="The mean step by what workers do",
        caption="Means over steps, workers and launches, as in the table of parts. Circles: the "
        "mean step of one launch each.",
        plot=plot_breakdown,
        data=breakdown_data,
        page="breakdown",
        shows_changed=True,
    ),
    FigureKind(
        name="timeline",
        title="One step of each strategy",
        caption="Of each strategy the point with the highest rate and the most workers, in a "
        "traced step of median length, on one clock. Above: what the worker does. Below: a line "
        "for each message of gradients, the one that is sent first at the top, from the moment its "
        "gradient is ready until the new value is on the worker. A message waits for its turn "
        "while as many others are under way as there may be. What no bar covers lies between two "
        "steps, or before a step has its values. Beyond the dashed line nothing is drawn.",
        plot=plot_timeline,
        data=timeline_data,
        page="timeline",
        shows_changed=True,
    ),
    FigureKind(
        name="explanation",
        title="Why one setting is faster than another",
        caption="Each bar is a pair that differs by the rule of decision. To the right of 0: "
        "milliseconds of a mean step that a part takes more at the setting that is named first. To "
        "the left: those that it takes less. The parts add up to the difference (diamond). Where "
        "the global batches differ, the step of the first setting is scaled to the same number of "
        "examples. Intervals, and which parts are estimates, are in the table.",
        plot=plot_explanation,
        data=explanation_data,
        page="explanation",
        shows_changed=True,
    ),
)


def save_figures(case: Case, folder: Path, told: str) -> Sequence[SavedFigure]:
    """Draw and write all figures of a case, and the data of each as CSV.

    Args:
        told: what file names tell of the case, see `case_names.file_names`.

    Raises:
        UserError: no permission, or no space left.
    """
    saved = []
    unchanged = without_changed(case)
    for kind in KINDS:
        drawn = case if kind.shows_changed else unchanged
        figure = kind.plot(drawn)
        if figure is not None:
            made = DrawnFigure(
                name=f"{kind.name}-{told}" if told else kind.name,
                title=kind.title,
                caption=_caption(kind, drawn) + _LEFT_OUT * (drawn is not case),
                figure=figure,
                data=kind.data(drawn),
            )
            saved.append(made.save(folder, case.name, kind.page))
    return saved


def _caption(kind: FigureKind, case: Case) -> str:
    """With what is said only of signs that a figure has."""
    scaling = case.points[0].experiment.workload.scaling
    bounded = kind.shows_bounds and point_table(case)["rate_bound"].notna().any()
    starred = any(point.mark for point in case.points)
    scaled = f" {_SCALED[scaling]}" if kind.tells_scaling else ""
    bounds = " ".join(filter(None, [_BOUNDS, left_out_text(case)])) if bounded else ""
    return kind.caption + scaled + bounds + _STARS * starred
