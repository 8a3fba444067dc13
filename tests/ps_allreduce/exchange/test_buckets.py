"""Buckets: every element travels once, to the right server, in messages of the right size."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ps_allreduce.exchange import buckets as buckets_module
from ps_allreduce.exchange.buckets import Bucket, Piece, Tensor, fill_buckets, holders

TENSORS = st.lists(
    st.builds(Tensor, size=st.integers(1, 60), server=st.integers(0, 2)), min_size=1, max_size=12
)
SIZES = st.integers(0, 40)


@pytest.fixture(autouse=True, scope="module")
def small_pieces() -> Iterator[None]:
    """Buckets of a few elements are tapered too."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(buckets_module, "LEAST_TAPERED", 2)
        yield


@given(TENSORS, SIZES, SIZES)
def test_every_element_travels_exactly_once_to_its_server(
    tensors: list[Tensor], group: int, cut: int
) -> None:
    buckets = fill_buckets(tensors, group, cut)
    assert all(bucket.size for bucket in buckets)
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
        parts = [buckets[number].pieces[inside] for number, inside in pieces]
        assert {piece.tensor for piece in parts} == {position}
        ends = [piece.start + piece.size for piece in parts]
        assert [piece.start for piece in parts] == [0, *ends[:-1]]
        assert ends[-1] == tensors[position].size


def test_the_last_layer_goes_first() -> None:
    buckets = fill_buckets([Tensor(4), Tensor(2), Tensor(3)], group_size=5, cut_size=0)
    assert buckets == (
        Bucket(0, (Piece(2, 0, 3), Piece(1, 0, 2))),
        Bucket(0, (Piece(0, 0, 4),)),
    )


def test_nothing_is_grouped_or_cut_unless_asked_for() -> None:
    buckets = fill_buckets([Tensor(4), Tensor(200)], group_size=0, cut_size=0)
    assert [bucket.size for bucket in buckets] == [200, 4]


def test_a_large_tensor_is_cut_into_near_equal_pieces_that_begin_and_end_small() -> None:
    buckets = fill_buckets([Tensor(40)], group_size=0, cut_size=10)
    assert [bucket.size for bucket in buckets] == [2, 3, 5, 10, 10, 5, 3, 2]
    starts = [bucket.pieces[0].start for bucket in buckets]
    assert starts == [0, 2, 5, 10, 20, 30, 35, 38]


def test_a_single_bucket_begins_and_ends_small_and_every_server_has_a_small_beginning() -> None:
    buckets = fill_buckets([Tensor(16)], group_size=0, cut_size=16)
    assert [bucket.size for bucket in buckets] == [2, 2, 4, 4, 2, 2]
    buckets = fill_buckets([Tensor(8, 0), Tensor(8, 1)], group_size=0, cut_size=8)
    assert [(b.server, b.size) for b in buckets] == [(1, 2), (1, 2), (1, 2), (1, 2)] + [(0, 2)] * 4


def test_a_bias_at_either_end_does_not_stand_for_a_small_beginning() -> None:
    buckets = fill_buckets([Tensor(1), Tensor(16), Tensor(1)], group_size=1, cut_size=8)
    assert [bucket.size for bucket in buckets] == [1, 2, 2, 4, 4, 2, 2, 1]
