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
    drawn_explanations,
    explanation_data,
    placement_data,
    plot_breakdown,
    plot_explanation,
    plot_placement,
)
from analysis.figures.changes import exchange_data, ladder_data, plot_exchange, plot_ladder
from analysis.figures.contenders import contenders_data, plot_contenders
from analysis.figures.marks import BOUND, Sign, signs_of, signs_text
from analysis.figures.step_timeline import UNDER_WAY, plot_timeline, timeline_data
from analysis.figures.style import save_figure
from analysis.stats.causes import seen_explanations
from analysis.stats.points import left_out_text
from analysis.stats.setting_pairs import rung_pairs, without_changed
from ps_allreduce.point.sides import PS_ASYNC
from ps_allreduce.point.workload import Scaling
from ps_allreduce.record.files import write_atomically

_LEFT_OUT = "Other settings have a figure of their own."

_SCALED = {
    Scaling.WEAK: "Scaling is weak: each worker keeps its batch.",
    Scaling.STRONG: "Scaling is strong: all workers share the batch of a single one.",
}


def _throughput_text(case: Case, signs: set[str]) -> str:
    shipped = [t for s in case.settings if (t := s.traits).as_shipped]
    kinds = [*dict.fromkeys(traits.kind for traits in shipped)]
    is_ = "is" if len(kinds) == 1 else "are"
    told = f"{' and '.join(kinds)} {is_} TensorFlow as it ships." if kinds else ""
    return " ".join(filter(None, [_asynchronous_text(case, signs), told]))


def _asynchronous_text(case: Case, signs: set[str]) -> str:
    sending = [s.traits.synchronous for s in case.settings if s.traits.communicates()]
    told = "Asynchronous settings do not compute the same as synchronous ones."
    return told * (len({*sending}) > 1)


def _contenders_text(case: Case, signs: set[str]) -> str:
    return _asynchronous_text(case, signs) * (PS_ASYNC.name in signs)


def _efficiency_text(case: Case, signs: set[str]) -> str:
    told = "Speed-up on strategy single, over workers."
    if case.shares_cores:
        told = "Rate over that of as many workers that do not communicate."
    return f"{told} {_SCALED[case.points[0].experiment.workload.scaling]}"


def _exchange_text(case: Case, signs: set[str]) -> str:
    corrected = " Intervals are corrected for their number (Holm)." * (Sign.INTERVAL in signs)
    return f"Launches are compared by turns where both have them.{corrected}"


def _ladder_text(case: Case, signs: set[str]) -> str:
    pairs = rung_pairs(case)
    fewer = any(point.threads < before.threads for point, before in pairs)
    thread = " The suite's step also takes a thread less." * fewer
    corrected = " Intervals of ratios are corrected for their number (Holm)." * (
        Sign.INTERVAL in signs
    )
    return f"Each rung keeps the changes above it.{thread}{corrected}"


def _timeline_text(case: Case, signs: set[str]) -> str:
    told = (
        "The fastest point of a strategy with the most workers, in a traced step of median length, "
        "on one clock."
    )
    if UNDER_WAY in signs:
        told += (
            " Lines: messages of gradients, each from the moment its gradient is ready until the "
            "new value is on the worker."
        )
    return (
        f"{told} What no bar covers lies between two steps, or before a step has its values. "
        "The dashed line ends what is drawn."
    )


def _explanation_text(case: Case, signs: set[str]) -> str:
    drawn = [told.row.points for told in drawn_explanations(case)]
    seen = len(seen_explanations(case))
    some = f"The first {len(drawn)} of {seen} pairs" if len(drawn) < seen else "Pairs"
    batches = any(one.experiment.global_batch != two.experiment.global_batch for one, two in drawn)
    scaled = " Where batches differ, the first step is scaled to as many examples." * batches
    return (
        f"{some} that differ by the rule of decision; left of 0: what takes less.{scaled} "
        "Intervals, and which parts are estimates, are in the table."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class FigureKind:
    """A sort of figure.

    Attributes:
        plot: returns None where a case has nothing to show.
        caption: what the picture does not say itself, by what is drawn (`signs_of`); what is said
            of the signs of points follows.
        data: what is drawn, as a table; asked only for cases that have something to show.
        page: of the report, by its anchor.
        shows_changed: points with many different settings of the exchange can be told apart in it.
    """

    name: str
    title: str
    caption: str | Callable[[Case, set[str]], str]
    plot: Callable[[Case], Figure | None]
    data: Callable[[Case], pd.DataFrame]
    page: str = "results"
    shows_changed: bool = False


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
            described=f"{self.title}, {of}. Data: {csv.name}.",
            page=page,
            csv=csv,
            **save_figure(self.figure, folder, self.name),
        )


KINDS = (
    FigureKind(
        name="settings",
        title="The compared settings, beside others",
        caption=_contenders_text,
        plot=plot_contenders,
        shows_changed=True,
        data=contenders_data,
    ),
    FigureKind(
        name="throughput",
        title="Throughput",
        caption=_throughput_text,
        plot=plot_throughput,
        data=rate_data,
    ),
    FigureKind(
        name="efficiency",
        title="Efficiency",
        caption=_efficiency_text,
        plot=plot_efficiency,
        data=efficiency_data,
        page="scaling",
    ),
    FigureKind(
        name="exchange",
        title="What each setting of the exchange changes",
        caption=_exchange_text,
        plot=plot_exchange,
        data=exchange_data,
        shows_changed=True,
    ),
    FigureKind(
        name="ladder",
        title="From TensorFlow as it ships to the suite's defaults",
        caption=_ladder_text,
        plot=plot_ladder,
        data=ladder_data,
        shows_changed=True,
    ),
    FigureKind(
        name="servers",
        title="Throughput against parameter servers",
        caption=_asynchronous_text,
        plot=plot_against_servers,
        data=rate_data,
    ),
    FigureKind(
        name="packs",
        title="Throughput of all-reduce against bytes per pack",
        caption="",
        plot=plot_against_packs,
        data=rate_data,
    ),
    FigureKind(
        name="placement",
        title="Bytes per server, and throughput",
        caption="Trainable bytes of what is exchanged whole, read back from the devices; at the "
        "top the hottest server holds least.",
        plot=plot_placement,
        data=placement_data,
        page="placement",
    ),
    FigureKind(
        name="breakdown",
        title="The mean step by what workers do",
        caption="Means over steps, workers and launches.",
        plot=plot_breakdown,
        data=breakdown_data,
        page="breakdown",
        shows_changed=True,
    ),
    FigureKind(
        name="timeline",
        title="One step by strategy",
        caption=_timeline_text,
        plot=plot_timeline,
        data=timeline_data,
        page="timeline",
        shows_changed=True,
    ),
    FigureKind(
        name="explanation",
        title="Why one setting is faster than another",
        caption=_explanation_text,
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
                caption=_caption(kind, drawn, figure, _LEFT_OUT * (drawn is not case)),
                figure=figure,
                data=kind.data(drawn),
            )
            saved.append(made.save(folder, case.name, kind.page))
    return saved


def _caption(kind: FigureKind, case: Case, figure: Figure, left_out: str) -> str:
    """What the picture does not say itself, of what is drawn in it."""
    signs = signs_of(figure)
    own = kind.caption if isinstance(kind.caption, str) else kind.caption(case, signs)
    links = left_out_text(case) if BOUND in signs else ""
    return " ".join(filter(None, [own, signs_text(signs), links, left_out]))
