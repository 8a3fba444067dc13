"""TFRecord files are written byte by byte as TensorFlow's documents say."""

from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.data_sets.tfrecords import encoded_example, framed, read_framed


@given(st.lists(st.binary(max_size=3000), max_size=4))
def test_what_is_framed_is_read_back(records: list[bytes]) -> None:
    content = b"".join(map(framed, records))
    assert [each[12:-4] for each in read_framed(io.BytesIO(content))] == records
    for end in range(1, min(40, len(content))):
        with pytest.raises(ValueError, match="inside a record"):
            list(read_framed(io.BytesIO(content[:-end] if records else b"x")))
        break


def test_an_example_has_the_fields_that_protocol_buffers_state() -> None:
    made = encoded_example(b"ab", (1, 300, -1))
    image = b"\x0a\x0f" + b"\x0a\x05image" + b"\x12\x06\x0a\x04\x0a\x02ab"
    packed = b"\x01" + b"\xac\x02" + b"\xff" * 9 + b"\x01"
    label = b"\x0a\x1a" + b"\x0a\x05label" + b"\x12\x11\x1a\x0f\x0a\x0d" + packed
    assert made == b"\x0a" + bytes([len(image + label)]) + image + label
