"""Texts against the files that hold them, byte for byte, and how the files are renewed."""

from __future__ import annotations

import csv
import difflib
import os
from collections.abc import Mapping
from itertools import islice
from pathlib import Path

import pytest

FILES = Path(__file__).resolve().parent / "files"

RENEW = "PS_ALLREDUCE_RENEW_GOLDENS"

#: Lines of a difference that are shown of each file.
MOST_LINES = 40

HOW = f"If it is meant to change: {RENEW}=1 with the same command, then read git diff."


def check(texts: Mapping[str, str]) -> None:
    """See that every text is what its file holds; write the files instead if that is asked for."""
    if is_renewing():
        for name, text in texts.items():
            (FILES / name).parent.mkdir(parents=True, exist_ok=True)
            (FILES / name).write_bytes(text.encode())
    differences = [_difference(name, _held(name), text) for name, text in texts.items()]
    if told := "\n".join(filter(None, differences)):
        pytest.fail(f"{told}\n{HOW}", pytrace=False)


def is_renewing() -> bool:
    """The files are written."""
    return os.environ.get(RENEW) == "1"


def there() -> set[str]:
    """The names of all files."""
    return {path.relative_to(FILES).as_posix() for path in FILES.rglob("*") if path.is_file()}


def _held(name: str) -> str:
    path = FILES / name
    return path.read_bytes().decode() if path.exists() else ""


def _difference(name: str, held: str, text: str) -> str:
    """Its first lines; empty if there is none."""
    if held == text:
        return ""
    sides = _cells(held), _cells(text)
    if not name.endswith(".csv") or sides[0] == sides[1]:
        sides = held.splitlines(), text.splitlines()
    lines = difflib.unified_diff(*sides, f"held/{name}", f"now/{name}", lineterm="", n=1)
    shown = list(islice(lines, MOST_LINES + 1))
    return "\n".join([*shown[:MOST_LINES], *(["..."] if len(shown) > MOST_LINES else [])])


def _cells(table: str) -> list[str]:
    """A line for each cell: those of a table of runs are too long to be compared by eye."""
    rows = csv.DictReader(table.splitlines())
    return [f"{row.get('run_id')} {name}: {cell}" for row in rows for name, cell in row.items()]
