"""Captions say what their picture shows, and nothing of what is not drawn in it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from analysis.data.cases import Case
from analysis.figures.bars import plot_placement
from analysis.figures.changes import plot_exchange, plot_ladder
from analysis.figures.contenders import plot_contenders
from analysis.figures.marks import STARRED
from analysis.figures.save import save_figures
from ps_allreduce.point.layout import num_hosts
from ps_allreduce.point.placement import Policy
from ps_allreduce.point.resources import LayoutKind, Spread
from ps_allreduce.point.strategies import (
    AllReduce,
    AsynchronousServers,
    NoCommunication,
    Single,
    StockServers,
    SynchronousServers,
)
from ps_allreduce.point.strategies.stated import Altered
from ps_allreduce.point.wire import UNBUCKETED
from ps_allreduce.record.records import RunRecord
from tests.analysis.builders import case_of, changed, placement_used, runs, times, with_wire
from tests.analysis.figures.test_figures import legend, titles
from tests.analysis.stats.test_contenders import with_steps
from tests.fakes import make_experiment, make_host

SERVERS = make_experiment(SynchronousServers, 2)


def launched(**facts: object) -> list[list[RunRecord]]:
    used = placement_used(100, 50)
    ring = runs(make_experiment(AllReduce, 2), times(1.2), **facts)
    return [
        runs(make_experiment(Single), times(0.6)),
        ring,
        runs(SERVERS, times(1.0), placement=used),
    ]


def captions(case: Case, folder: Path) -> dict[str, str]:
    return {figure.png.stem: figure.caption for figure in save_figures(case, folder, "")}


def test_a_caption_explains_only_what_is_drawn(tmp_path: Path) -> None:
    plain = captions(case_of(*launched()), tmp_path)
    assert {"settings", "throughput", "placement", "efficiency"} <= plain.keys()
    absent = ("star", "arrow", "Hollow", "Asynchronous", "stock_", "bound", "Dotted", "one tick")
    assert not [(name, said) for name, said in plain.items() if any(s in said for s in absent)]
    free = runs(make_experiment(AsynchronousServers, 2), times(1.1))
    stock = runs(make_experiment(StockServers, 2), times(0.9))
    told = captions(case_of(*launched(), free, stock), tmp_path)
    assert "Asynchronous settings do not compute the same" in told["throughput"]
    assert "stock_ps is TensorFlow as it ships." in told["throughput"]
    assert "Asynchronous" in told["settings"]


@pytest.mark.parametrize(
    ("turns", "said"),
    [
        (1, "Markers: geometric means."),
        (3, "Markers: geometric means with 95 % intervals."),
    ],
)
def test_intervals_are_told_of_where_there_are_some(tmp_path: Path, turns: int, said: str) -> None:
    values: dict[int, float | None] = {turn: 100.0 + turn for turn in range(turns)}
    case = case_of(runs(make_experiment(Single), values), runs(SERVERS, values))
    assert said in captions(case, tmp_path)["throughput"]


def test_pairs_that_are_not_drawn_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    points = SERVERS, make_experiment(AllReduce, 2), make_experiment(AsynchronousServers, 2)
    case = case_of(*[runs(own, times(2.0**each)) for each, own in enumerate(points)])
    told = captions(case, tmp_path)["explanation"]
    assert told.startswith("Pairs that differ")
    monkeypatch.setattr("analysis.figures.bars.MOST_PAIRS", 1)
    told = captions(case, tmp_path)["explanation"]
    assert re.match(r"The first 1 of [23] pairs that differ", told)


def test_stars_are_explained_by_the_legend_of_their_picture(tmp_path: Path) -> None:
    case = case_of(*launched(oversubscribed=True))
    assert not [name for name, said in captions(case, tmp_path).items() if "star" in said]
    points = SERVERS, with_wire(SERVERS, UNBUCKETED)
    crowded = [runs(own, times(1.0), oversubscribed=True) for own in points]
    assert STARRED in legend(plot_exchange(case_of(*crowded)))


def test_no_title_counts_settings_that_send_nothing_among_all() -> None:
    own = runs(make_experiment(NoCommunication, 2), times(1.5))
    above, below = titles(plot_contenders(case_of(*launched(), own)))
    assert (above, below) == ("compared", "all that send, 2 workers")


def test_what_is_not_ranked_is_drawn_below_what_is() -> None:
    uneven = [
        with_steps(each, (39, 1))
        for each in runs(make_experiment(AsynchronousServers, 2), times(9.0))
    ]
    even = make_experiment(AsynchronousServers, 2, placement=Policy.PARTITIONED)
    figure = plot_contenders(case_of(*launched(), uneven, runs(even, times(1.0))))
    assert figure is not None
    names = [label.get_text() for label in figure.axes[1].get_yticklabels()]
    assert names[-1].endswith(", not ranked")


def test_a_ladder_that_lacks_rungs_claims_no_single_changes(tmp_path: Path) -> None:
    shipped = make_experiment(StockServers, 2)
    altered = changed(shipped, altered=Altered.STATISTICS)
    case = case_of(runs(shipped, times(1.0)), runs(altered, times(1.1)))
    assert plot_ladder(case) is not None
    assert "one change" not in captions(case, tmp_path)["ladder"]


def test_a_title_of_the_placement_says_no_more_than_has_room() -> None:
    figure = plot_placement(case_of(*launched()))
    assert titles(figure) == ["bytes; hottest over mean", "2 workers"]


def test_a_title_names_the_workers_of_all_that_it_is_over() -> None:
    """On equal hosts servers take the places of workers, and other sizes are not drawn."""
    four = {"launcher": "ssh", "spread": Spread()}
    servers = make_experiment(SynchronousServers, 3, num_ps=1, layout=LayoutKind.DEDICATED, **four)
    points = servers, *(make_experiment(AllReduce, workers, **four) for workers in (2, 4))
    case = case_of(
        *(
            runs(own, times(1.0), hosts=tuple(make_host(f"n{n}") for n in range(num_hosts(own))))
            for own in points
        )
    )
    assert titles(plot_contenders(case))[1] == "all that send, 3 or 4 workers"
