"""The pages that the site makes from declarations name all of them."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from PIL import Image

from analysis.data import columns
from analysis.figures.style import SIDE_COLOURS
from experiments.__main__ import cli

DOCS = Path(__file__).resolve().parents[1] / "docs"


@pytest.fixture(scope="module")
def reference() -> ModuleType:
    spec = importlib.util.spec_from_file_location("reference", DOCS / "reference.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_column_is_shown_with_its_type(reference: ModuleType) -> None:
    page = "\n".join(reference.column_lines())
    assert all(f"`{name}`" in page for name in columns.COLUMNS)
    assert "| `repetition`, `attempt` | integer | as in the record |" in page


def test_every_command_and_every_option_is_shown(reference: ModuleType) -> None:
    page = "\n".join(reference.command_lines())
    for word, command in cli.commands.items():
        assert f"### experiments {word}" in page
        named = [name for each in command.params for name in each.opts if name.startswith("--")]
        assert all(name in page for name in named)


def test_options_of_sweeps_are_listed_once(reference: ModuleType) -> None:
    page = "\n".join(reference.command_lines())
    assert page.count("| `--warmup-steps <n>` |") == 1


def test_a_page_is_filled_in_at_its_mark(reference: ModuleType) -> None:
    source = ["before\n<!-- columns -->\nafter <!-- other -->"]
    reference.fill(None, "results_format", source)
    assert source[0].startswith("before\n| column | type | meaning |")
    assert source[0].endswith("after <!-- other -->")


def test_every_mark_has_its_page(reference: ModuleType) -> None:
    pages = [path.read_text(encoding="utf-8") for path in DOCS.glob("*.md")]
    assert all(sum(mark in page for page in pages) == 1 for mark in reference.MARKS)


def test_the_first_page_links_to_the_readme_and_shows_it_on_the_site(reference: ModuleType) -> None:
    page = (DOCS / "index.md").read_text(encoding="utf-8")
    assert "](../README.md)" in page
    source = [page]
    reference.fill(None, "index", source)
    assert source[0].startswith("```{include} ../README.md\n")


def test_the_readme_stays_short() -> None:
    assert len((DOCS.parent / "README.md").read_text(encoding="utf-8").split()) <= 900


def test_the_readme_s_picture_keeps_the_colours_that_pages_name() -> None:
    picture = Image.open(DOCS / "figures" / "first_page.png").convert("RGB")
    pixels = np.unique(np.asarray(picture, dtype=int).reshape(-1, 3), axis=0)
    for colour in list(SIDE_COLOURS.values())[:3]:  # all-reduce, synchronous, asynchronous
        wanted = [*bytes.fromhex(colour.removeprefix("#"))]
        assert np.abs(pixels - wanted).max(axis=1).min() < 8
