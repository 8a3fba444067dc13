"""The table of placements, word by word."""

from __future__ import annotations

import pytest

from experiments.cli.model_commands import PlacedRows, render_placements, render_rows
from ps_allreduce.errors import UserError
from ps_allreduce.exchange.stacking import RowRule, Stack
from ps_allreduce.point.placement import VariableSpec
from ps_allreduce.record.variables import RowsAsked
from tests.fakes import TWO_LAYERS

MEGABYTES = tuple(
    VariableSpec(name=spec.name, shape=(*spec.shape, 100), dtype="float32", trainable=True)
    for spec in TWO_LAYERS
)

GOLDEN = """\
Tiny: 4 trainable variables, 2.2 MB; largest dense/kernel with 1.3 MB; 2 servers

policy         max/mean  MB (variables or shards) per server
round_robin        1.96  2.14 (2)  0.05 (2)
greedy             1.20  0.88 (2)  1.31 (2)
largest_first      1.17  1.28 (1)  0.91 (3)
partitioned        1.11  1.22 (4)  0.98 (5)

Suggested: partitioned (max/mean 1.11, 9 variables or shards).
"""


def test_every_policy_is_shown_and_one_suggested() -> None:
    assert render_placements("Tiny", MEGABYTES, 2, 400_000) == GOLDEN.rstrip("\n")


def test_statistics_are_no_load() -> None:
    statistics = VariableSpec(name="mean", shape=(10**6,), dtype="float32", trainable=False)
    assert "4 trainable variables, 2.2 MB; largest dense/kernel" in render_placements(
        "Tiny", [*MEGABYTES, statistics], 2, 400_000
    )


def test_useless_servers_are_told() -> None:
    text = render_placements("Tiny", MEGABYTES, 3, 400_000)
    assert "no more than 2 servers can share the load of this model" in text
    assert (
        "largest_first: the hottest of 3 servers holds 1.28 MB, with num_ps 2 it holds 1.28 MB"
        in text
    )


def test_a_useless_second_server_is_told() -> None:
    one = VariableSpec(name="kernel", shape=(1000,), dtype="float32", trainable=True)
    tiny = VariableSpec(name="bias", shape=(1,), dtype="float32", trainable=True)
    text = render_placements("Tiny", [one, tiny, one, tiny], 2, 4_000_000)
    assert "with num_ps 1 it holds 8.01 kB; use 1 or another policy" in text


def test_more_servers_than_variables_leave_partitioned_ones_possible() -> None:
    with pytest.raises(UserError, match="5 parameter servers but only 4 shards"):
        render_placements("Tiny", TWO_LAYERS, 5, 4_000_000)
    text = render_placements("Tiny", TWO_LAYERS, 5, 100)
    assert text.count("impossible: more servers than variables") == 3
    assert "Suggested: partitioned" in text
    assert "partitioned: the hottest" not in text


def way(rule: RowRule, asked: tuple[float, ...], refusal: str = "") -> PlacedRows:
    """Two tables of rows of 4 kB on two servers."""
    whole = (0, 1) if rule is RowRule.WHOLE else ()
    rows = RowsAsked(row_bytes=4000, asked=9, unique=8, longest=32, union=8, per_server=asked)
    stack = Stack(rows=(300, 100), num_servers=2, rule=rule, servers=whole)
    return PlacedRows(name=str(rule), stack=stack, asked=rows, examples=4, refusal=refusal)


TABLE_OF_ROWS = """\
With --embeddings sparse, a step of 4 examples looks up 8 different rows (0.032 MB) of the 400 in 2 tables:

--table-rows           max/mean  rows asked of each server (MB held)
range                      1.75  7 (0.80)  1 (0.80)
modulo                     1.00  4 (0.80)  4 (0.80)
whole                      1.25  3 (1.20)  5 (0.40)

Suggested: modulo (max/mean 1.00 in rows asked)."""  # noqa: E501


def test_balance_is_that_of_rows_asked() -> None:
    ways = [way(RowRule.RANGE, (7, 1)), way(RowRule.MODULO, (4, 4)), way(RowRule.WHOLE, (3, 5))]
    assert render_rows(ways, drawn_evenly=False) == TABLE_OF_ROWS


def test_what_leaves_a_server_empty_is_no_suggestion() -> None:
    refused = [way(RowRule.WHOLE, (8, 0), "3 parameter servers but only 2 would hold ...")]
    assert "whole                         -  impossible: some server would hold" in render_rows(
        [*refused, way(RowRule.RANGE, (7, 1))], drawn_evenly=True
    )
    assert render_rows(refused, drawn_evenly=False).endswith(
        "\n3 parameter servers but only 2 would hold ..."
    )
