"""Buckets: every element travels once, to the right server, in messages of the right size."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ps_allreduce.buckets import Bucket, Piece, Tensor, fill_buckets, holders

TENSORS = st.lists(
    st.builds(Tensor, size=st.integers(1, 60), server=st.integers(0, 2)), min_size=1, max_size=12
)
SIZES = st.integers(0, 40)


def _whole(position: int, size: int) -> Piece:
    return Piece(position, 0, size)


@given(TENSORS, SIZES, SIZES)
def test_every_element_travels_exactly_once_to_its_server(
    tensors: list[Tensor], group: int, cut: int
) -> None:
    buckets = fill_buckets(tensors, group, cut)
    sent = [
        (piece.tensor, piece.start + offset, bucket.server)
        for bucket in buckets
        for piece in bucket.pieces
        for offset in range(piece.size)
    ]
    expected = [
        (position, element, tensor.server)
        for position, tensor in enumerate(tensors)
        for element in range(tensor.size)
    ]
    assert sorted(sent) == expected


@given(TENSORS, SIZES, st.integers(1, 40))
def test_no_message_is_larger_than_asked_for(tensors: list[Tensor], group: int, cut: int) -> None:
    assert all(bucket.size <= max(group, cut) for bucket in fill_buckets(tensors, group, cut))


@given(TENSORS, SIZES)
def test_only_neighbours_that_fit_share_a_message(tensors: list[Tensor], group: int) -> None:
    shared = [b for b in fill_buckets(tensors, group, 0) if len(b.pieces) > 1]
    assert all(bucket.size <= group for bucket in shared)


@given(TENSORS, SIZES, SIZES)
def test_the_pieces_of_a_tensor_are_found_in_order(
    tensors: list[Tensor], group: int, cut: int
) -> None:
    buckets = fill_buckets(tensors, group, cut)
    for position, pieces in enumerate(holders(buckets, len(tensors))):
        found = [buckets[number].pieces[inside] for number, inside in pieces]
        assert {piece.tensor for piece in found} == {position}
        ends = [piece.start + piece.size for piece in found]
        assert [piece.start for piece in found] == [0, *ends[:-1]]
        assert ends[-1] == tensors[position].size


def test_the_last_layer_goes_first() -> None:
    buckets = fill_buckets([Tensor(4), Tensor(2), Tensor(3)], group_size=5, cut_size=0)
    assert buckets == (
        Bucket(0, (_whole(2, 3), _whole(1, 2))),
        Bucket(0, (_whole(0, 4),)),
    )


def test_nothing_is_grouped_or_cut_unless_asked_for() -> None:
    buckets = fill_buckets([Tensor(4), Tensor(200)], group_size=0, cut_size=0)
    assert [bucket.size for bucket in buckets] == [200, 4]


def test_a_large_tensor_is_cut_into_near_equal_pieces() -> None:
    buckets = fill_buckets([Tensor(10)], group_size=0, cut_size=4)
    assert [bucket.pieces[0] for bucket in buckets] == [
        Piece(0, 0, 3),
        Piece(0, 3, 3),
        Piece(0, 6, 4),
    ]
