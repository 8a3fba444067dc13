"""What a record holds of a model's variables: where they were, what was sent of their gradients.

Also their values before the first step and after the last: a NumPy archive without pickles, whose
arrays are `0000`, `0001` and so on for the trainable variables at the end, in creation order, and
`initial/0000` and so on for those that training began with.  Where variables should go is decided
in `point.placement`, which gradients travel together in `exchange.buckets`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ps_allreduce.point.placement import Held, Plan, Shard, check_devices, read_back


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
    """

    shards: tuple[Shard, ...]
    variables: tuple[str, ...]
    bytes_per_server: tuple[int, ...]
    planned_bytes: tuple[int, ...] = ()
    max_over_mean: float
    deviations: tuple[str, ...] = ()

    @classmethod
    def of(cls, plan: Plan, held: Held, variables: Sequence[str]) -> PlacementUsed:
        """What became of a plan, by the devices that TensorFlow reports."""
        found = read_back(plan, held)
        return cls(
            shards=found.shards,
            variables=tuple(variables),
            bytes_per_server=found.bytes_per_server(),
            planned_bytes=plan.bytes_per_server(),
            max_over_mean=found.max_over_mean,
            deviations=tuple(check_devices(plan, held)),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageRecord:
    """What a worker sends at once: a bucket, or with TensorFlow's own packs a single gradient.

    Attributes:
        server: the parameter server that holds its values; None without servers.
        num_bytes: of its gradients, in float32.
        variables: names of the variables whose gradients it carries, wholly or in part.
    """

    server: int | None = None
    num_bytes: int
    variables: tuple[str, ...]


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
