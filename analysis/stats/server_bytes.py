"""Bytes per parameter server as planned and as read back.

The policies themselves are in `ps_allreduce.point.placement`; here is what became of them.
"""

from __future__ import annotations

from dataclasses import dataclass

from analysis.data.cases import Case, Point
from ps_allreduce.record.records import PlacementUsed


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PlacementPoint:
    """The servers' loads at one point.

    Attributes:
        planned_bytes: trainable bytes of each server by the plan.
        used_bytes: the same, read back from the devices of the variables.
        max_over_mean: of the bytes used; 1.00 is balanced.
        deviations: one sentence for every variable that was elsewhere, in any launch.
    """

    point: Point
    planned_bytes: tuple[int, ...]
    used_bytes: tuple[int, ...]
    max_over_mean: float
    deviations: tuple[str, ...]

    @property
    def as_planned(self) -> bool:
        """Every variable was where the plan wanted it."""
        return self.planned_bytes == self.used_bytes and not self.deviations


def placement_points(case: Case) -> tuple[PlacementPoint, ...]:
    """One for each point with parameter servers whose placement was recorded."""
    recorded = [(p, _recorded(p)) for p in case.points if p.setting.traits.uses_servers]
    return tuple(_placement_point(point, used) for point, used in recorded if used)


def _recorded(point: Point) -> list[PlacementUsed]:
    """Of the launches that count, or of all attempts where there is none."""
    counting = set(point.launches["run_id"])
    records = [record for record in point.records if record.run_id in counting or not counting]
    return [record.placement for record in records if record.placement is not None]


def _placement_point(point: Point, used: list[PlacementUsed]) -> PlacementPoint:
    # The loads of the worst launch: an average would hide a launch that went astray.
    worst = max(used, key=lambda launch: (len(launch.deviations), launch.max_over_mean))
    return PlacementPoint(
        point=point,
        planned_bytes=planned_bytes(worst),
        used_bytes=worst.bytes_per_server,
        max_over_mean=worst.max_over_mean,
        deviations=tuple(dict.fromkeys(line for launch in used for line in launch.deviations)),
    )


def planned_bytes(used: PlacementUsed) -> tuple[int, ...]:
    """Trainable bytes of each server by the plan that the record holds."""
    loads = [0] * len(used.bytes_per_server)
    for shard in used.shards:
        loads[shard.server] += shard.num_bytes
    return tuple(loads)
