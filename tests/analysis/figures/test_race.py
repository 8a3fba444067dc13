"""The race of a tuning as a figure: a line for each side, a marker where the lead changes."""

from __future__ import annotations

import math

import pandas as pd

from analysis.figures.race import plot_race
from analysis.figures.style import render_figure

LAUNCHES = pd.DataFrame(
    [
        ("all-reduce", 0.5, 10.0, "a", 10.0),
        ("all-reduce", 1.0, 12.0, "b", 12.0),
        ("all-reduce", 1.5, None, "b", 12.0),
        ("servers", 0.5, None, None, None),
        ("servers", 1.0, 9.0, "c", 9.0),
    ],
    columns=["side", "node_minutes", "rate", "best_experiment_id", "best_rate"],
)


def test_each_side_has_a_line_and_its_launches() -> None:
    figure = plot_race(LAUNCHES, "SmallCNN, 2 hosts", "images")
    (axes,) = figure.axes
    first, second = (line for line in axes.lines if len(line.get_xdata()))
    assert [*first.get_ydata()] == [10.0, 12.0, 12.0]
    assert first.get_markevery() == [0, 1, 2]
    assert math.isnan([*second.get_ydata()][0])
    assert (axes.get_ylabel(), axes.get_title(loc="left")) == ("images/s", "SmallCNN, 2 hosts")
    assert render_figure(figure, "png") == render_figure(figure, "png")


def test_a_side_without_any_good_launch_has_an_empty_line() -> None:
    assert plot_race(LAUNCHES.iloc[:4], "SmallCNN, 2 hosts", "images").axes
