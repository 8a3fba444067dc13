"""Text is parsed where it is typed; every mistake is one sentence with the valid choices."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import click
import pytest

from launchers.cli.types import COUNTS, DELAY, MINUTES, RATE, SIZE, WORDS, named, one_of


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


@pytest.mark.parametrize(
    ("kind", "text", "expected"),
    [
        (MINUTES, "90", 90),
        (MINUTES, "0", 1),
        (MINUTES, "10:30", 11),
        (MINUTES, "1:30:00", 90),
        (MINUTES, "0:59:59", 60),
        (MINUTES, "1-12", 36 * 60),
        (MINUTES, "1-0:10", 24 * 60 + 10),
        (MINUTES, "2-1:00:30", 49 * 60 + 1),
        (SIZE, "4000000", 4_000_000),
        (SIZE, "500kB", 500_000),
        (SIZE, "1.5 MB", 1_500_000),
        (COUNTS, "4,1, 2,4", (1, 2, 4)),
        (RATE, "2.5gbit", 2.5e9),
        (DELAY, "5ms", 0.005),
        (WORDS, "a 'b c'", ("a", "b c")),
        (WORDS, "", ()),
        (named(["b", "a"]), "a", "a"),
    ],
)
def test_text_is_read(kind: Any, text: str, expected: object) -> None:
    assert kind.convert(text, None, None) == expected


@pytest.mark.parametrize(
    ("kind", "text", "told"),
    [
        (MINUTES, "soon", "'soon' is no time; write minutes, hours:minutes:seconds or days-"),
        (MINUTES, "1:2:3:4", "is no time"),
        (MINUTES, "-5", "is no time"),
        (MINUTES, "", "is no time"),
        (SIZE, "4 apples", "is no size; write bytes, or for instance 500kB or 4MB."),
        (SIZE, "-1", "is no size"),
        (COUNTS, "1,two", "is no list of whole numbers from 1 on; write for instance 1,2,4."),
        (COUNTS, "0", "is no list"),
        (RATE, "1", "a rate is a number and one of gbit, mbit, kbit, bit"),
        (WORDS, "it's", "cannot be split into words (No closing quotation)."),
        (one_of(Colour), "green", "'green' is not one of red, blue."),
    ],
)
def test_a_mistake_is_a_sentence(kind: Any, text: str, told: str) -> None:
    with pytest.raises(click.BadParameter) as caught:
        kind.convert(text, None, None)
    assert told in str(caught.value)


@pytest.mark.parametrize("value", ["blue", Colour.BLUE])
def test_a_member_is_found_by_its_value(value: str) -> None:
    assert one_of(Colour).convert(value, None, None) is Colour.BLUE
