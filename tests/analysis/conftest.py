"""What tests of the analysis share: figures are rendered where figures are tested."""

from __future__ import annotations

import pytest
from matplotlib.figure import Figure

from analysis.figures import style


def blank(figure: Figure, kind: str) -> bytes:
    """What stands for a figure's file."""
    return f'<svg viewBox="0 0 9 9"><metadata>{kind}</metadata></svg>'.encode()


@pytest.fixture
def rendered() -> None:
    """Asked for by a test that looks into the files of figures."""


@pytest.fixture(autouse=True)
def blank_figures(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Elsewhere they are plotted, and their files hold a word: rendering takes most of a report.

    A whole report with real files is opened in tests/real/test_page.py.
    """
    if "figures" not in request.path.parts and "rendered" not in request.fixturenames:
        monkeypatch.setattr(style, "render_figure", blank)
