"""Where the trainable variables of a run really were.

Decides what a record holds of a plan that was carried out; where variables should go is decided in
`point.placement`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

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
