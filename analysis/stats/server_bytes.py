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
        worst: the launch that was farthest from its plan; an average would hide one that went
            astray.
        deviations: one sentence for every variable that was elsewhere, in any launch.
    """

    point: Point
    worst: PlacementUsed
    deviations: tuple[str, ...]

    @property
    def planned_bytes(self) -> tuple[int, ...]:
        """Trainable bytes of each server by the plan that the record holds."""
        loads = [0] * len(self.worst.bytes_per_server)
        for shard in self.worst.shards:
            loads[shard.server] += shard.num_bytes
        return tuple(loads)

    @property
    def as_planned(self) -> bool:
        """Every variable was where the plan wanted it."""
        return self.planned_bytes == self.worst.bytes_per_server and not self.deviations


def placement_points(case: Case) -> list[PlacementPoint]:
    """One for each point with parameter servers whose placement was recorded."""
    return [
        PlacementPoint(
            point=point,
            worst=max(used, key=lambda launch: (len(launch.deviations), launch.max_over_mean)),
            deviations=tuple(dict.fromkeys(line for launch in used for line in launch.deviations)),
        )
        for point in case.points
        if point.setting.traits.uses_servers and (used := _recorded(point))
    ]


def _recorded(point: Point) -> list[PlacementUsed]:
    """Of the launches that count, or of all attempts where there is none."""
    records = point.counting or point.records
    return [record.placement for record in records if record.placement is not None]
