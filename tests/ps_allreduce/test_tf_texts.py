"""What is left of an error of TensorFlow is the line that says what happened."""

from __future__ import annotations

import pytest

from ps_allreduce.tf_texts import essence

GRAPH = """\
Graph execution error:

Detected at node Sum defined at (most recent call last):
  File "step.py", line 3, in step

"""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ""),
        ("Socket closed\n", "Socket closed"),
        ("first\nsecond", "first"),
        (f"{GRAPH}Socket closed\n\t [[{{{{node Sum}}}}]] [Op:step]", "Socket closed"),
        (
            f"{GRAPH}Collective ops is aborted by: no peer\n"
            "The error could be from a previous operation. Restart your program to reset.\n"
            "\t [[{{node Sum}}]] [Op:step]",
            "Collective ops is aborted by: no peer",
        ),
        ("[[{{node Sum}}]]", "[[{{node Sum}}]]"),
        ("{{function_node __wrapped__Decode_device_/cpu:0}} no image [Op:Decode]", "no image"),
        ("x" * 400, "x" * 300),
    ],
)
def test_an_error_in_one_line(text: str, expected: str) -> None:
    assert essence(text) == expected
