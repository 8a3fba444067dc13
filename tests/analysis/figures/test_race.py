"""The race of a tuning as a figure: a line for each side, a marker where the lead changes."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest

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
    heights = [np.asarray(line.get_ydata(), dtype=float).tolist() for line in axes.lines]
    assert heights == [[10.0, 12.0, 12.0], [pytest.approx(math.nan, nan_ok=True), 9.0]]
    assert [line.get_markevery() for line in axes.lines] == [[0, 1, 2], [0, 1]]
    assert (axes.get_ylabel(), figure.get_suptitle()) == ("images/s", "SmallCNN, 2 hosts")
    again = plot_race(LAUNCHES, "SmallCNN, 2 hosts", "images")
    assert render_figure(figure, "png") == render_figure(again, "png")


def test_a_side_without_any_good_launch_has_an_empty_line() -> None:
    assert plot_race(LAUNCHES.iloc[:4], "SmallCNN, 2 hosts", "images").axes
