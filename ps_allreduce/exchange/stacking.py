"""Tables of equal width as one: where each of their rows stands, and on which server.

A step then looks up, sends and applies rows of all tables at once.  A row has a number in the
stack.  Row number q is on server q modulo the number of servers, at place q divided by it.  So the
rule that places rows is the rule that numbers them:

- `range`: a table's rows in equal blocks, one for each server, as TensorFlow shards (`div`);
- `modulo`: one row after the other to the next server;
- `hash`: like modulo, in an order that has nothing to do with the ids.  Multiplying by a number
  that has no factor in common with the number of rows is such an order (Knuth, The Art of Computer
  Programming 3, section 6.4), and two rows never meet.

Experiments take `RowRule` and `Stack` from here, and bounds what a row weighs.  Pure: ids may be
NumPy arrays or tensors.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

#: Of a hash: the golden ratio spreads neighbours most evenly.
GOLDEN_RATIO = (math.sqrt(5) - 1) / 2


#: Workers gather rows in such multiples.  TensorFlow remembers an instance of a collective by its
#: key, with its shape, and refuses another (2.21): so each size needs a key of its own.
GRAIN = 32

#: On the wire a row has its number beside it, an int64.
NUMBER_BYTES = 8


class RowRule(StrEnum):
    """Rules that map rows of tables to parameter servers."""

    RANGE = "range"
    MODULO = "modulo"
    HASH = "hash"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack:
    """Tables one behind the other.

    Attributes:
        rows: of each table, in the order in which the tables were created.
        num_servers: 1 where there are none.
    """

    rows: tuple[int, ...]
    num_servers: int = 1
    rule: RowRule = RowRule.MODULO

    @property
    def rows_per_server(self) -> int:
        """Of all tables; some servers leave the last places of a table empty."""
        return sum(self._block(rows) for rows in self.rows)

    def number(self, table: int, ids: Any) -> Any:
        """The numbers in the stack of whole-number ids of a table."""
        before = self.num_servers * sum(self._block(rows) for rows in self.rows[:table])
        rows, block = self.rows[table], self._block(self.rows[table])
        if self.rule is RowRule.RANGE:
            return before + ids % block * self.num_servers + ids // block
        factor = _factor(rows) if self.rule is RowRule.HASH else 1
        return before + ids * factor % rows

    def _block(self, rows: int) -> int:
        return -(-rows // self.num_servers)


def _factor(rows: int) -> int:
    """No factor in common with the number of rows, near the golden ratio of it."""
    wanted = max(1, round(rows * GOLDEN_RATIO))
    return next(
        factor for factor in range(wanted, wanted + rows + 1) if math.gcd(factor, rows) == 1
    )


def counts(stack: Stack, numbers: Sequence[int]) -> list[int]:
    """How many of some rows each server holds."""
    per_server = [0] * stack.num_servers
    for number in numbers:
        per_server[number % stack.num_servers] += 1
    return per_server
