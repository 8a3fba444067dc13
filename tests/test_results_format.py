"""The description of what the suite writes names everything that it writes."""

from __future__ import annotations

import re
import types
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

import pytest

from analysis.report.summary import COLUMNS
from experiments.sweep.folder import NOTE, InFlight
from ps_allreduce.record.records import FORMAT_VERSION, RunRecord
from ps_allreduce.record.steps import EventTable, StepTable

TEXT = (Path(__file__).resolve().parents[1] / "docs/results_format.md").read_text(encoding="utf-8")

#: Every name in code style, and every part of one that has dots.
NAMED = {
    part for name in re.findall(r"`([^`\n]+)`", TEXT) for part in re.split(r"[.\[\]\s,]+", name)
}


def keys(kind: Any) -> set[str]:
    """All keys of a dataclass as it is written, however deep."""
    found = set()
    for name, hint in get_type_hints(kind).items():
        found |= {name} | inner_keys(hint)
    return found


def inner_keys(hint: Any) -> set[str]:
    if is_dataclass(hint):
        return keys(hint)
    if get_origin(hint) is Mapping or not isinstance(hint, types.GenericAlias | types.UnionType):
        return set()
    return set().union(*(inner_keys(argument) for argument in get_args(hint)))


def test_there_are_keys_to_look_for() -> None:
    found = keys(RunRecord)
    assert {"images_per_sec", "prefix_length", "coordinator", "round_trip_s"} <= found


@pytest.mark.parametrize("name", sorted(keys(RunRecord) | {f.name for f in fields(InFlight)}))
def test_every_key_of_a_record_is_explained(name: str) -> None:
    assert name in NAMED


@pytest.mark.parametrize("name", COLUMNS)
def test_every_column_of_the_summary_is_explained(name: str) -> None:
    assert name in NAMED


def test_every_array_of_the_raw_timings_is_explained() -> None:
    arrays = {f"steps_{f.name}" for f in fields(StepTable)}
    arrays |= {f"events_{f.name}" for f in fields(EventTable)}
    assert arrays - NAMED == set()


def test_the_history_goes_up_to_the_present_version() -> None:
    versions = re.findall(r"^\| (\d+) \|", TEXT.split("## Format history")[1], flags=re.MULTILINE)
    assert [int(version) for version in versions] == list(range(1, FORMAT_VERSION + 1))


def test_the_note_of_a_run_is_named() -> None:
    assert f"`{NOTE}`" in TEXT
