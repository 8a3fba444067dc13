"""The table of ways to place rows, word by word."""

from __future__ import annotations

from experiments.cli.placement_command import PlacedRows, render_rows
from ps_allreduce.exchange.stacking import RowRule, Stack
from ps_allreduce.record.variables import RowsAsked


def way(rule: RowRule, asked: tuple[float, ...], refusal: str = "") -> PlacedRows:
    """Two tables of rows of 4 kB on two servers."""
    whole = (0, 1) if rule is RowRule.WHOLE else ()
    rows = RowsAsked(row_bytes=4000, asked=9, unique=8, longest=32, union=8, per_server=asked)
    stack = Stack(rows=(300, 100), num_servers=2, rule=rule, servers=whole)
    return PlacedRows(name=str(rule), stack=stack, asked=rows, examples=4, refusal=refusal)


GOLDEN = """\
With --embeddings sparse, a step of 4 examples looks up 8 different rows (0.032 MB) of the 400 in 2 tables:

--table-rows           max/mean  rows asked of each server (MB held)
range                      1.75  7 (0.80)  1 (0.80)
modulo                     1.00  4 (0.80)  4 (0.80)
whole                      1.25  3 (1.20)  5 (0.40)

Suggested: modulo (max/mean 1.00 in rows asked)."""  # noqa: E501


def test_balance_is_that_of_rows_asked() -> None:
    ways = [way(RowRule.RANGE, (7, 1)), way(RowRule.MODULO, (4, 4)), way(RowRule.WHOLE, (3, 5))]
    assert render_rows(ways, drawn_evenly=False) == GOLDEN


def test_what_leaves_a_server_empty_is_no_suggestion() -> None:
    refused = [way(RowRule.WHOLE, (8, 0), "3 parameter servers but only 2 would hold ...")]
    assert "whole                         -  impossible: some server would hold" in render_rows(
        [*refused, way(RowRule.RANGE, (7, 1))], drawn_evenly=True
    )
    assert render_rows(refused, drawn_evenly=False).endswith(
        "\n3 parameter servers but only 2 would hold ..."
    )
