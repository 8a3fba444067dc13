"""Bytes per parameter server as planned and as read back, beside the throughput they gave.

The policies themselves are in `ps_allreduce.point.placement`; here is what became of them.
"""

from __future__ import annotations

from dataclasses import dataclass

from analysis.data.cases import Case, Point
from analysis.stats.statistics import Estimate, estimate
from ps_allreduce.record.records import PlacementUsed


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementPoint:
    """The servers' loads at one point.

    Attributes:
        planned_bytes: trainable bytes of each server by the plan.
        used_bytes: the same, read back from the devices of the variables.
        max_over_mean: of the bytes used; 1.00 is balanced.
        deviations: one sentence for every variable that was elsewhere, in any launch.
        throughput: images per second; None if all launches failed.
    """

    point: Point
    planned_bytes: tuple[int, ...]
    used_bytes: tuple[int, ...]
    max_over_mean: float
    deviations: tuple[str, ...]
    throughput: Estimate | None

    @property
    def as_planned(self) -> bool:
        """Every variable was where the plan wanted it."""
        return self.planned_bytes == self.used_bytes and not self.deviations


def placement_points(case: Case) -> tuple[PlacementPoint, ...]:
    """One for each point with parameter servers whose placement was recorded."""
    with_servers = [point for point in case.points if point.setting.traits.uses_servers]
    found = [(point, _recorded(point)) for point in with_servers]
    return tuple(_placement_point(point, used) for point, used in found if used)


def _recorded(point: Point) -> list[PlacementUsed]:
    runs = list(point.launches.values()) or point.attempts
    return [run.placement for run in runs if run.placement is not None]


def _placement_point(point: Point, used: list[PlacementUsed]) -> PlacementPoint:
    rates = list(point.rates.values())
    # The loads of the worst launch: an average would hide a launch that went astray.
    worst = max(used, key=lambda launch: (len(launch.deviations), launch.max_over_mean))
    return PlacementPoint(
        point=point,
        planned_bytes=planned_bytes(worst),
        used_bytes=worst.bytes_per_server,
        max_over_mean=worst.max_over_mean,
        deviations=tuple(dict.fromkeys(line for launch in used for line in launch.deviations)),
        throughput=estimate(rates) if rates else None,
    )


def planned_bytes(used: PlacementUsed) -> tuple[int, ...]:
    """Trainable bytes of each server by the plan that the record holds."""
    count = len(used.bytes_per_server)
    return tuple(
        sum(shard.num_bytes for shard in used.shards if shard.server == server)
        for server in range(count)
    )
