"""The description of what the suite writes names everything that it writes."""

from __future__ import annotations

import re
import types
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

import pytest

import analysis
from analysis.data import columns
from experiments.sweep.folder import NOTE, InFlight
from ps_allreduce.point.strategies.stated import DECLARATIONS
from ps_allreduce.record.files import save_raw
from ps_allreduce.record.records import FORMAT_VERSION, RunRecord
from ps_allreduce.record.step_table import EventTable, Phase, StepTable
from tests.fakes import make_steps, no_events

TEXT = (Path(__file__).resolve().parents[1] / "docs/results_format.md").read_text(encoding="utf-8")

#: Every name in code style, and every part of one that has dots.
NAMED = {
    part for name in re.findall(r"`([^`\n]+)`", TEXT) for part in re.split(r"[.\[\]\s,]+", name)
}


def keys(kind: Any) -> set[str]:
    """All keys of a dataclass as it is written, however deep."""
    hints = get_type_hints(kind)
    inner = (inner_keys(hints[field.name]) for field in fields(kind))
    return {field.name for field in fields(kind)}.union(*inner)


def inner_keys(hint: Any) -> set[str]:
    if is_dataclass(hint):
        return keys(hint)
    if get_origin(hint) is Mapping or not isinstance(hint, types.GenericAlias | types.UnionType):
        return set()
    return set().union(*(inner_keys(argument) for argument in get_args(hint)))


def test_there_are_keys_to_look_for() -> None:
    found = keys(RunRecord)
    assert {"examples_per_sec", "prefix_length", "coordinator", "round_trip_s"} <= found


@pytest.mark.parametrize("name", sorted(keys(RunRecord) | {f.name for f in fields(InFlight)}))
def test_every_key_of_a_record_is_explained(name: str) -> None:
    # The page has a line for the column of each setting of a strategy.
    assert name in NAMED | DECLARATIONS.keys()


def described(heading: str) -> list[tuple[list[str], str]]:
    """Of every row of the table below a heading the names, and the second column."""
    table = TEXT.split(heading)[1].split("\n#")[0]
    rows = re.findall(r"^\| (`.*?) \| (.*?) \|", table, flags=re.MULTILINE)
    return [(re.findall(r"`(\w+)`", names), told) for names, told in rows]


def test_columns_of_the_table_of_runs_have_one_meaning_each() -> None:
    assert [name for names in columns.MEANINGS for name in names] == list(columns.COLUMNS)
    assert all(columns.MEANINGS.values())
    assert "<!-- columns -->" in TEXT


def test_the_table_of_steps_is_described_column_by_column(tmp_path: Path) -> None:
    steps = make_steps(0, [0.1, 0.2], [Phase.FIRST, Phase.MEASURED])
    save_raw(tmp_path / "0-0.npz", steps, no_events())
    table = analysis.load_steps(tmp_path / "0-0.json")
    rows = described("### `analysis.load_steps`")
    assert {name for names, _ in rows for name in names} == set(table.columns)


def test_every_array_of_the_raw_timings_is_explained() -> None:
    arrays = {f"steps_{f.name}" for f in fields(StepTable)}
    arrays |= {f"events_{f.name}" for f in fields(EventTable)}
    assert arrays - NAMED == set()


def test_the_history_goes_up_to_the_present_version() -> None:
    versions = re.findall(r"^\| (\d+) \|", TEXT.split("## Format history")[1], flags=re.MULTILINE)
    assert [int(version) for version in versions] == list(range(1, FORMAT_VERSION + 1))


def test_the_note_of_a_run_is_named() -> None:
    assert f"`{NOTE}`" in TEXT
