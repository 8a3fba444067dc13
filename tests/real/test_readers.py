"""All readers of files keep one contract, and workers share files without overlap."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.real.points import output_of

pytestmark = pytest.mark.tensorflow


@pytest.fixture(scope="module")
def provoked(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What `provoked_readers` prints."""
    return json.loads(output_of("provoked_readers", str(tmp_path_factory.mktemp("read"))).stdout)


#: Channels, format and shape of targets of each reader's batches of 6.
FORMS = {
    "encoded records": (3, "int64", [6]),
    "raw records": (5, "float32", [6, 4]),
    "values": (3, "float32", [6, 1]),
    "loose images": (3, "int64", [6]),
}


@pytest.mark.parametrize("name", FORMS)
def test_a_reader_gives_endless_batches_in_its_form(name: str, provoked: Any) -> None:
    channels, dtype, targets = FORMS[name]
    told = provoked["outcomes"][name]
    assert told["shape"] == [6, 6, 6, channels]
    assert (told["dtypes"], told["targets"]) == (["float32", dtype], targets)
    assert told["in range"]
    assert told["batches"] == [20, 20, 20, 20]


@pytest.mark.parametrize("name", FORMS)
def test_ordered_batches_repeat_and_are_dealt_in_turn(name: str, provoked: Any) -> None:
    assert provoked["outcomes"][name]["repeats"]
    assert provoked["outcomes"][name]["dealt"]


def test_targets_are_what_labels_say(provoked: Any) -> None:
    assert provoked["targets"]["encoded records"] == [0, 1, 2, 0, 1, 2]
    assert provoked["targets"]["raw records"][:2] == [[0, 0, 0, 0], [0, 1, 0, 1]]
    assert provoked["targets"]["values"][0] == pytest.approx([0.2])


def test_the_shares_of_all_workers_are_everything_once(provoked: Any) -> None:
    assert provoked["tried"] >= 30
    assert provoked["own files"]


def test_a_damaged_image_is_named(provoked: Any) -> None:
    assert "exif.jpg is damaged: " in provoked["damage"]
