"""Which pieces of the gradients travel together.

A bucket is one message: small tensors are grouped, large ones are cut.  The word is that of
PyTorch's DistributedDataParallel (Li et al., PyTorch Distributed, VLDB 2020).  A backward pass
yields the last layer's gradients first, and buckets are filled in that order, so that the first is
ready early.  The first and the last large bucket of a server are cut once more, into pieces that
are smallest at the very beginning and end.  Nothing can come back before the first piece has
arrived, and nothing is sent while the last one comes back.

Experiments take `Messages` and `Part` from here.  Decides sizes and order only: `placement` decides
the server of a tensor, the strategy how many buckets are under way at once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

#: Elements of the smallest piece that a bucket is tapered to; a message has a price of its own.
LEAST_TAPERED = 16_384


@dataclass(frozen=True, slots=True, kw_only=True)
class Messages:
    """How gradients are sent.

    Attributes:
        group_size, cut_size: as in `fill_buckets`.
        in_flight: so many messages are under way at once; 0 is no bound.
        number_format: of gradients under way, as TensorFlow names it.
    """

    group_size: int
    cut_size: int
    in_flight: int
    number_format: str = "float32"


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A variable, or a slice of one along one axis, on one server.

    Attributes:
        variable: a number that orders the variables as they were created.
        axis: the axis that is cut, None for a whole variable.
        start, length: first index along the axis, and number of indices (0 for a whole variable).
        server: index of the parameter server.
    """

    variable: int
    axis: int | None = None
    start: int = 0
    length: int = 0
    server: int


@dataclass(frozen=True, slots=True)
class Tensor:
    """What buckets are made of: a whole gradient, or a shard of one.

    Attributes:
        size: number of elements, at least one.
        server: where it goes; 0 for all where there are no servers.
    """

    size: int
    server: int = 0


@dataclass(frozen=True, slots=True)
class Piece:
    """A range of the elements of one flattened tensor, which is told by its position."""

    tensor: int
    start: int
    size: int


@dataclass(frozen=True, slots=True)
class Bucket:
    """One message: pieces one behind the other, all for the same server."""

    server: int
    pieces: tuple[Piece, ...]

    @property
    def size(self) -> int:
        """Number of elements."""
        return sum(piece.size for piece in self.pieces)


def fill_buckets(tensors: Sequence[Tensor], group_size: int, cut_size: int) -> tuple[Bucket, ...]:
    """Cover every element of every tensor exactly once, the last tensor first.

    Args:
        group_size: elements up to which neighbouring tensors for one server are sent together;
            0 sends each on its own.
        cut_size: elements above which a tensor is cut, into near-equal pieces; 0 cuts nothing.
    """
    buckets = _fill(tensors, group_size, cut_size)
    return _taper(buckets) if cut_size else buckets


def _fill(tensors: Sequence[Tensor], group_size: int, cut_size: int) -> tuple[Bucket, ...]:
    done: list[Bucket] = []
    open_pieces: dict[int, list[Piece]] = {}

    def close(server: int) -> None:
        if pieces := open_pieces.pop(server, []):
            done.append(Bucket(server, tuple(pieces)))

    for position in reversed(range(len(tensors))):
        tensor = tensors[position]
        pieces = _cut(position, tensor.size, cut_size)
        if len(pieces) > 1 or tensor.size >= group_size:
            close(tensor.server)
            done += [Bucket(tensor.server, (piece,)) for piece in pieces]
            continue
        filled = sum(piece.size for piece in open_pieces.get(tensor.server, []))
        if filled + tensor.size > group_size:
            close(tensor.server)
        open_pieces.setdefault(tensor.server, []).extend(pieces)
    for server in tuple(open_pieces):
        close(server)
    return tuple(done)


def _cut(position: int, size: int, cut_size: int) -> list[Piece]:
    count = math.ceil(size / cut_size) if cut_size else 1
    bounds = [size * part // count for part in range(count + 1)]
    return [Piece(position, start, stop - start) for start, stop in pairwise(bounds)]


def _taper(buckets: Sequence[Bucket]) -> tuple[Bucket, ...]:
    # A bias behind a large bucket is no taper: what is large itself is cut.
    large = [bucket for bucket in buckets if bucket.size // 2 >= LEAST_TAPERED]
    first = {bucket.server: bucket for bucket in reversed(large)}
    last = {bucket.server: bucket for bucket in large}
    return tuple(
        part
        for bucket in buckets
        for part in _divide(
            bucket,
            _tapered_sizes(
                bucket.size,
                is_first=bucket is first.get(bucket.server),
                is_last=bucket is last.get(bucket.server),
            ),
        )
    )


def _tapered_sizes(size: int, *, is_first: bool, is_last: bool) -> list[int]:
    """Sizes that grow from the start of the first bucket, and shrink to the end of the last."""
    if is_first and is_last and size > 1:
        return [*reversed(_halves(size // 2)), *_halves(size - size // 2)]
    if is_first:
        return _halves(size)[::-1]
    return _halves(size) if is_last else [size]


def _halves(size: int) -> list[int]:
    """A half, a quarter, an eighth and so on, and then the rest; together they are the size."""
    parts = []
    while size // 2 >= LEAST_TAPERED:
        parts.append(size - size // 2)
        size //= 2
    return [*parts, size]


def _divide(bucket: Bucket, sizes: Sequence[int]) -> list[Bucket]:
    """A bucket cut into buckets of these sizes, which add up to its own."""
    divided = []
    pieces = list(bucket.pieces)
    for size in sizes:
        taken: list[Piece] = []
        while size:
            piece = pieces.pop(0)
            part = min(size, piece.size)
            taken.append(Piece(piece.tensor, piece.start, part))
            if part < piece.size:
                pieces.insert(0, Piece(piece.tensor, piece.start + part, piece.size - part))
            size -= part
        divided.append(Bucket(bucket.server, tuple(taken)))
    return divided


def holders(buckets: Sequence[Bucket], num_tensors: int) -> list[list[tuple[int, int]]]:
    """For each tensor, its pieces in order: the number of the bucket, and the position in it."""
    by_tensor: list[list[tuple[int, int, int]]] = [[] for _ in range(num_tensors)]
    for number, bucket in enumerate(buckets):
        for inside, piece in enumerate(bucket.pieces):
            by_tensor[piece.tensor].append((piece.start, number, inside))
    return [[(number, inside) for _, number, inside in sorted(pieces)] for pieces in by_tensor]
