"""What was decided for a sweep holds until another sweep is asked for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from experiments.sweep.definition import (
    LAUNCHES,
    Choices,
    read_choices,
    save_definition,
)
from ps_allreduce.errors import RecordFormatError
from ps_allreduce.point.placement import Policy
from ps_allreduce.record.files import DEFINITION, read_json
from tests.experiments.sweeps import SWEEP


def answer(value: int) -> Callable[[], int]:
    return lambda: value


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    """The folder of a sweep for which something was decided."""
    choices = Choices(request="asked", block="here")
    assert choices.decide("cores per worker", int, answer(4)) == 4
    assert choices.decide("numbers of workers", tuple[int, ...], lambda: (1, 2)) == (1, 2)
    assert choices.decide("best placement", Policy, lambda: Policy.GREEDY) is Policy.GREEDY
    save_definition(SWEEP, choices, tmp_path)
    return tmp_path


def test_the_order_holds_what_is_launched_in_any_case(tmp_path: Path) -> None:
    choices, longest = Choices(request="asked", block="here"), replace(SWEEP, main_launches=30)
    save_definition(longest, choices, tmp_path)
    assert len(read_json(tmp_path / DEFINITION)["order"]) == len(SWEEP.runs())
    choices.answers[LAUNCHES] = 30
    save_definition(longest, choices, tmp_path)
    assert len(read_json(tmp_path / DEFINITION)["order"]) == len(longest.runs()) == 60


@pytest.mark.parametrize("block", ["here", pytest.param(None, id="hosts are not known yet")])
def test_a_sweep_that_goes_on_is_not_decided_anew(stored: Path, block: str | None) -> None:
    choices = read_choices(stored, "asked", block)
    assert choices.decide("cores per worker", int, answer(8)) == 4
    assert choices.decide("numbers of workers", tuple[int, ...], lambda: (1, 2, 4)) == (1, 2)
    assert choices.decide("best placement", Policy, lambda: Policy.ROUND_ROBIN) is Policy.GREEDY


@pytest.mark.parametrize(("request_", "block"), [("another", "here"), ("asked", "elsewhere")])
def test_another_request_or_block_is_decided_anew(stored: Path, request_: str, block: str) -> None:
    choices = read_choices(stored, request_, block)
    assert choices.decide("cores per worker", int, answer(8)) == 8


@pytest.mark.parametrize("text", ["", "{", "[]", '{"order": []}', '{"decided_for": 1}'])
def test_what_cannot_be_read_decides_nothing(tmp_path: Path, text: str) -> None:
    (tmp_path / DEFINITION).write_text(text)
    assert read_choices(tmp_path, "asked", None).answers == {}
    assert read_choices(tmp_path / "new", "asked", None).answers == {}


def test_an_answer_of_another_type_is_told_with_its_question(stored: Path) -> None:
    choices = read_choices(stored, "asked", "here")
    with pytest.raises(RecordFormatError, match=r"sweep\.json, choice 'best placement'"):
        choices.decide("best placement", int, answer(1))
