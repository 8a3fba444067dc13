"""Tables of equal width as one: where each of their rows stands, and on which server.

A step then looks up, sends and applies rows of all tables at once.  A row has a number in the
stack.  Row number q is on server q modulo the number of servers, at place q divided by it.  So the
rule that places rows is the rule that numbers them:

- `range`: a table's rows in equal blocks, one for each server, as TensorFlow shards (`div`);
- `modulo`: one row after the other to the next server;
- `hash`: like modulo, in an order that has nothing to do with the ids.  Multiplying by a number
  that has no factor in common with the number of rows is such an order (Knuth, The Art of Computer
  Programming 3, section 6.4), and two rows never meet;
- `whole`: all rows of a table on one server, which somebody else has chosen.

A table begins one server further than the one before it: else the most popular rows of all tables,
which usually are their first, would be on the same server.  `range` does as TensorFlow does.

Experiments take `RowRule` and `Stack` from here, and bounds what a row weighs.  Pure: ids may be
NumPy arrays or tensors.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np
import numpy.typing as npt

#: Of a hash: the golden ratio spreads neighbours most evenly.
GOLDEN_RATIO = (math.sqrt(5) - 1) / 2


#: Workers gather rows in such multiples.  TensorFlow remembers an instance of a collective by its
#: key, with its shape, and refuses another (2.21): so each size needs a key of its own.
GRAIN = 32

#: The number of a row that is none: of an id that no table has, or of what fills a message up.
NO_ROW = -1

#: On the wire a row has its number beside it, an int64.
NUMBER_BYTES = 8


class RowRule(StrEnum):
    """Rules that map rows of tables to parameter servers."""

    RANGE = "range"
    MODULO = "modulo"
    HASH = "hash"
    WHOLE = "whole"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack:
    """Tables one behind the other.

    Attributes:
        rows: of each table, in the order in which the tables were created.
        num_servers: 1 where there are none.
        servers: of each table, where tables stay whole.
    """

    rows: tuple[int, ...]
    num_servers: int = 1
    rule: RowRule = RowRule.MODULO
    servers: tuple[int, ...] = ()

    def places_on(self, server: int) -> int:
        """For rows of all tables; some servers leave the last places of a table empty."""
        if self.rule is RowRule.WHOLE:
            return self._before(server, len(self.rows))
        return sum(self._block(rows) for rows in self.rows)

    @property
    def length(self) -> int:
        """Above every number."""
        return self.num_servers * max(map(self.places_on, range(self.num_servers)))

    def rows_by_server(self) -> list[int]:
        """How many rows of all tables each server holds."""
        held = [self.rows_of(table) for table in range(len(self.rows))]
        return [sum(rows[server] for rows in held) for server in range(self.num_servers)]

    def rows_of(self, table: int) -> list[int]:
        """How many rows of a table each server holds."""
        return self.by_server(self.number(table, np.arange(self.rows[table])))

    def by_server(self, numbers: npt.NDArray[np.int64]) -> list[int]:
        """How many of some rows each server holds."""
        held = np.bincount(numbers % self.num_servers, minlength=self.num_servers)
        return [int(count) for count in held]

    def number(self, table: int, ids: Any) -> Any:
        """The numbers in the stack of whole-number ids of a table."""
        if self.rule is RowRule.WHOLE:
            server = self.servers[table]
            return (self._before(server, table) + ids) * self.num_servers + server
        before = self.num_servers * sum(self._block(rows) for rows in self.rows[:table])
        rows, block = self.rows[table], self._block(self.rows[table])
        if self.rule is RowRule.RANGE:
            return before + ids % block * self.num_servers + ids // block
        dealt = ids * (_factor(rows) if self.rule is RowRule.HASH else 1) % rows
        servers = self.num_servers
        return before + dealt // servers * servers + (dealt + table) % servers

    def _before(self, server: int, table: int) -> int:
        """Rows on a server of tables before one, which stay whole."""
        earlier = zip(self.rows[:table], self.servers[:table], strict=True)
        return sum(rows for rows, at in earlier if at == server)

    def _block(self, rows: int) -> int:
        return -(-rows // self.num_servers)


def _factor(rows: int) -> int:
    """No factor in common with the number of rows, near the golden ratio of it."""
    wanted = max(1, round(rows * GOLDEN_RATIO))
    return next(
        factor for factor in range(wanted, wanted + rows + 1) if math.gcd(factor, rows) == 1
    )
