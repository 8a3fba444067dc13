"""The checksum of TFRecord files: CRC-32C, with NumPy.

Decides how it is computed: the standard library has none, and TensorFlow's is not to be had without
loading TensorFlow.  A checksum is linear: what a byte adds depends on the byte and on how many
bytes follow, so a table holds it, and what a block of bytes adds is looked up at once.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

#: Castagnoli's polynomial, its bits in reverse (RFC 3720, appendix B.4).
_POLYNOMIAL = 0x82F63B78

_ALL_ONES = 0xFFFFFFFF

#: Bytes that are looked up at once.  An image that is decoded between two checksums empties a
#: processor's cache: larger blocks have tables (0.5 MB here) that take longer to come back.
_BLOCK = 512

#: So many blocks at a time: their indices stay in the cache.
_BLOCKS_AT_ONCE = 64

#: So few bytes are quicker one by one.
_FEW = 16

#: What TFRecord files add to a checksum (tensorflow/core/lib/hash/crc32c.h).
_MASK = 0xA282EAD8

_OFFSETS = np.arange(_BLOCK, dtype=np.intp) * 256


@cache
def _single() -> list[int]:
    """What the last byte of all adds."""
    return [int(each) for each in _tables()[0][-256:]]


@cache
def _tables() -> tuple[npt.NDArray[np.uint32], list[int]]:
    """What a byte at a place of a block adds, place by place; and the same of the first four."""
    single: npt.NDArray[Any] = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        single = (single >> 1) ^ np.where(single & 1, np.uint32(_POLYNOMIAL), np.uint32(0))
    places = np.empty((_BLOCK, 256), np.uint32)
    places[-1] = single
    for place in range(_BLOCK - 2, -1, -1):
        after = places[place + 1]
        places[place] = (after >> 8) ^ single[after & 255]
    return places.ravel(), places[:4].ravel().tolist()


def crc32c(content: bytes) -> int:
    """CRC-32C of some bytes (RFC 3720)."""
    if len(content) < _FEW:
        return _one_by_one(content)
    table, first_four = _tables()
    # Zeros before the first byte add nothing, and fill the first block.
    values = np.zeros(-(-len(content) // _BLOCK) * _BLOCK, np.uint8)
    begin = len(values) - len(content)
    values[begin:] = np.frombuffer(content, np.uint8)
    # At the beginning all bits of the state are one: they turn those of the first four bytes.
    values[begin : begin + 4] ^= 255
    blocks, state = values.reshape(-1, _BLOCK), 0
    for first in range(0, len(blocks), _BLOCKS_AT_ONCE):
        found = table.take(blocks[first : first + _BLOCKS_AT_ONCE] + _OFFSETS)
        for added in np.bitwise_xor.reduce(found, axis=1).tolist():
            state = added ^ _moved(state, first_four)
    return state ^ _ALL_ONES


def _moved(state: int, table: list[int]) -> int:
    """What becomes of a state after a block of zeros: it acts like the block's first four bytes."""
    return (
        table[state & 255]
        ^ table[256 + (state >> 8 & 255)]
        ^ table[512 + (state >> 16 & 255)]
        ^ table[768 + (state >> 24)]
    )


def _one_by_one(content: bytes) -> int:
    single, state = _single(), _ALL_ONES
    for value in content:
        state = (state >> 8) ^ single[state & 255 ^ value]
    return state ^ _ALL_ONES


def masked_crc32c(content: bytes) -> int:
    """As TFRecord files hold it: turned by 15 bits, plus a constant."""
    crc = crc32c(content)
    return ((crc >> 15 | crc << 17) + _MASK) & _ALL_ONES
