"""What a record holds of a model's variables: where they were, what was sent of their gradients.

Also their values before the first step and after the last: a NumPy archive without pickles, whose
arrays are `0000`, `0001` and so on for the trainable variables at the end, in creation order, and
`initial/0000` and so on for those that training began with.  Where variables should go is decided
in `point.placement`, which gradients travel together in `exchange.buckets`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ps_allreduce.exchange.stacking import GRAIN
from ps_allreduce.point.placement import Held, Plan, Shard, check_devices, read_back, server_of


@dataclass(frozen=True, slots=True, kw_only=True)
class TableUsed:
    """Where the rows of a table were, of which only those looked up are exchanged.

    Attributes:
        variable: its position in creation order.
        row_bytes: of one row, in float32.
        rows_per_server: as the devices tell that hold them.
    """

    variable: int
    row_bytes: int
    rows_per_server: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementUsed:
    """Where the trainable variables really were, read back from their devices.

    Attributes:
        shards: those planned, each on the server where it really was; one that was on several is
            there several times, with the bytes of each.
        variables: names by position in creation order, for the shards to point into.
        bytes_per_server: of the shards.
        planned_bytes: of each server, by the plan.
        deviations: one sentence for every shard that was elsewhere.
        max_over_mean: trainable bytes of the hottest server over the mean.
        tables: that are exchanged by rows; they are none of the shards, and no bytes count of them.
    """

    shards: tuple[Shard, ...]
    variables: tuple[str, ...]
    bytes_per_server: tuple[int, ...]
    planned_bytes: tuple[int, ...] = ()
    max_over_mean: float
    deviations: tuple[str, ...] = ()
    tables: tuple[TableUsed, ...] = ()

    @classmethod
    def of(
        cls,
        plan: Plan,
        held: Held,
        variables: Sequence[str],
        tables: Sequence[TableUsed] = (),
        homes: Sequence[str] = (),
    ) -> PlacementUsed:
        """What became of a plan, by the devices that TensorFlow reports.

        Args:
            tables: as planned.
            homes: the device of the rows of each server.
        """
        servers = [server_of(device) for device in homes]
        found = read_back(plan, held)
        return cls(
            shards=found.shards,
            variables=tuple(variables),
            bytes_per_server=found.bytes_per_server(),
            planned_bytes=plan.bytes_per_server(),
            max_over_mean=found.max_over_mean,
            deviations=(*check_devices(plan, held), *_misplaced_rows(homes)),
            tables=tuple(_as_held(table, servers) for table in tables),
        )


def _misplaced_rows(homes: Sequence[str]) -> list[str]:
    return [
        f"rows of tables were planned on ps:{planned} but are on {device!r}"
        for planned, device in enumerate(homes)
        if server_of(device) != planned
    ]


def _as_held(table: TableUsed, servers: Sequence[int | None]) -> TableUsed:
    """A planned table with its rows on the servers that really hold them."""
    rows = [0] * len(servers)
    for server, count in zip(servers, table.rows_per_server, strict=True):
        if server is not None:
            rows[server] += count
    return replace(table, rows_per_server=tuple(rows))


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageRecord:
    """What a worker sends at once: a bucket, or with TensorFlow's own packs a single gradient.

    Attributes:
        server: the parameter server that holds its values; None without servers.
        num_bytes: of its gradients, in float32.
        variables: names of the variables whose gradients it carries, wholly or in part.
        of_rows: it stands for all messages with rows of tables, to any server or worker.
    """

    server: int | None = None
    num_bytes: int
    variables: tuple[str, ...]
    of_rows: bool = False


#: Ends a note about such a gradient.
MADE_DENSE = "is sparse and was made dense"


@dataclass(frozen=True, slots=True, kw_only=True)
class SparseGradient:
    """The gradient of a variable of which a step uses some rows.

    Attributes:
        variable: its path.
        num_rows: of the whole variable.
        row_bytes: of each, in float32.
        looked_up: rows that a worker looks up in a step, a repeated one each time; None where the
            graph of the step does not tell.
    """

    variable: str
    num_rows: int
    row_bytes: int
    looked_up: int | None

    @property
    def dense_bytes(self) -> int:
        """Of all rows."""
        return self.num_rows * self.row_bytes

    @property
    def most_touched_rows(self) -> int | None:
        """That a worker's step can change: fewer where it looks a row up again."""
        return None if self.looked_up is None else min(self.looked_up, self.num_rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class RowsAsked:
    """Rows of tables that steps look up, where only these are exchanged: means over batches.

    Attributes:
        row_bytes: of each, in float32.
        asked: by a worker in a step, a repeated row each time.
        unique: different ones of a worker.
        longest: of the worker with most of them, rounded up as all-reduce gathers them.
        union: different ones of all workers together.
        per_server: of `unique`, those that each server holds; empty without servers.
    """

    row_bytes: int
    asked: float
    unique: float
    longest: float
    union: float
    per_server: tuple[float, ...] = ()

    @classmethod
    def of(
        cls,
        numbers: Sequence[Sequence[npt.NDArray[np.int64]]],
        asked: float,
        row_bytes: int,
        num_servers: int = 0,
    ) -> RowsAsked:
        """From the numbers in the stack of different rows, for each worker and each batch.

        Row number q is on server q modulo their number.
        """
        steps = list(zip(*numbers, strict=True))
        sizes = np.array([[len(batch) for batch in step] for step in steps])
        held = [
            np.bincount(batch % num_servers, minlength=num_servers)
            for step in steps
            for batch in step
            if num_servers
        ]
        return cls(
            row_bytes=row_bytes,
            asked=asked,
            unique=float(sizes.mean()),
            longest=float((-(-sizes.max(axis=1) // GRAIN) * GRAIN).mean()),
            union=float(np.mean([len(np.unique(np.concatenate(step))) for step in steps])),
            per_server=tuple(map(float, np.mean(held, axis=0))) if held else (),
        )

    @property
    def hot_shard(self) -> float | None:
        """Rows that are asked of the hottest server over the mean; None without servers."""
        if not self.per_server:
            return None
        return max(self.per_server) * len(self.per_server) / sum(self.per_server)

    def over(self, num_servers: int) -> tuple[float, ...]:
        """Of each of so many servers: as measured, or evenly on another number of them."""
        if num_servers == len(self.per_server):
            return self.per_server
        return (self.unique / num_servers,) * num_servers

    def columns(self) -> dict[str, object]:
        """As columns of a table."""
        return {
            "rows_asked": self.asked,
            "rows_unique": self.unique,
            "rows_union": self.union,
            "hot_shard": self.hot_shard,
        }


INITIAL = "initial/"

Values = Sequence[npt.NDArray[np.float32]]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunWeights:
    """The trainable variables in creation order, before the first step and after the last."""

    initial: Values
    final: Values


def save_weights(path: Path, weights: RunWeights) -> None:
    """Write the archive."""
    arrays = _named("", weights.final) | _named(INITIAL, weights.initial)
    np.savez(path, allow_pickle=False, **arrays)


def _named(prefix: str, values: Values) -> dict[str, npt.NDArray[np.float32]]:
    return {f"{prefix}{number:04d}": value for number, value in enumerate(values)}


def load_weights(path: Path) -> RunWeights:
    """Read the archive."""
    with np.load(path, allow_pickle=False) as archive:
        return RunWeights(initial=_values(archive, INITIAL), final=_values(archive, ""))


def _values(archive: Mapping[str, npt.NDArray[np.float32]], prefix: str) -> Values:
    count = sum(name.startswith(INITIAL) for name in archive)
    return tuple(archive[f"{prefix}{number:04d}"] for number in range(count))
