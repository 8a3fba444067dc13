"""What of the busiest link's time a hot server, hot rows or a slow link cause.

Decides what each is held against: servers that hold equally many bytes, or are asked for equally
many rows of tables, and links that are all as
fast as the fastest one.  Both are bounds like those of `fastest_step`: a real exchange loses at
least as much.  Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from analysis.derive.fastest_step import host_rates, made_flows_of
from ps_allreduce.bounds import link_bytes, network_time_s
from ps_allreduce.point.placement import (
    Policy,
    VariableSpec,
    default_split_bytes,
    make_plan,
)
from ps_allreduce.record.records import RunRecord
from ps_allreduce.record.variables import PlacementUsed
from ps_allreduce.serialization import Columns

#: Placements that balance bytes, the one that cuts nothing first.
_BALANCED = (Policy.LARGEST_FIRST, Policy.PARTITIONED)


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkCauses(Columns):
    """Seconds of a step of all workers in which the busiest link carries more than it had to.

    Attributes:
        hot_server_s: because one server holds more bytes than the others.
        hot_rows_s: because one server is asked for more rows of tables than the others.
        slow_link_s: because links are slower than the fastest one.
        fastest_link_bits_per_s: rate of that one.
    """

    hot_server_s: float
    hot_rows_s: float
    slow_link_s: float
    fastest_link_bits_per_s: float


def network_causes(record: RunRecord) -> NetworkCauses | None:
    """Of a run; None where nothing crosses a link, or the rates of links are not known."""
    flows, rates = made_flows_of(record), host_rates(record)
    hosts = set(link_bytes(flows))
    if not hosts or not hosts <= set(rates) or min(map(min, rates.values())) <= 0:
        return None
    fastest = max(map(max, rates.values()))
    alike = dict.fromkeys(rates, (fastest, fastest))
    now_s = network_time_s(flows, rates)
    balanced = made_flows_of(record, balanced_loads(record.placement))
    even = made_flows_of(record, even_rows=True)
    return NetworkCauses(
        hot_server_s=max(0.0, now_s - network_time_s(balanced, rates)),
        hot_rows_s=max(0.0, now_s - network_time_s(even, rates)),
        slow_link_s=max(0.0, now_s - network_time_s(flows, alike)),
        fastest_link_bits_per_s=8 * fastest,
    )


def balanced_loads(used: PlacementUsed | None) -> Sequence[int] | None:
    """Equally many bytes for every server that was used."""
    if used is None:
        return None
    num_ps = len(used.bytes_per_server)
    return [round(sum(used.bytes_per_server) / num_ps)] * num_ps


def better_placement(used: PlacementUsed) -> tuple[float, Policy]:
    """The placement that would balance best what a run placed; of equals the one without cuts.

    Before it, the largest share of the bytes that a server would hold.
    """
    found = [(_largest_share(policy, used), policy) for policy in _BALANCED]
    return min(found, key=lambda each: round(each[0], 2))


def _largest_share(policy: Policy, used: PlacementUsed) -> float:
    variables, num_ps = placed_variables(used), len(used.bytes_per_server)
    trained = sum(each.trainable for each in variables)
    if policy is not Policy.PARTITIONED and trained < num_ps:
        return 1.0
    plan = make_plan(policy, variables, num_ps, default_split_bytes(variables, num_ps))
    return max(plan.bytes_per_server()) / sum(plan.bytes_per_server())


def placed_variables(used: PlacementUsed) -> Sequence[VariableSpec]:
    """All variables with their sizes, in creation order; how they are shaped is not known.

    Those that are not trained have turns of a round robin, too, but no size is known of them.
    """
    sizes = dict.fromkeys(range(len(used.variables)), 0)
    for shard in used.shards:
        sizes[shard.variable] = sizes.get(shard.variable, 0) + shard.num_bytes
    return [variable_of(number, size) for number, size in sorted(sizes.items())]


def variable_of(number: int, num_bytes: int) -> VariableSpec:
    """A variable of so many bytes, 0 of one that is not trained."""
    shape = (num_bytes // 4,)
    return VariableSpec(name=str(number), shape=shape, dtype="float32", trainable=num_bytes > 0)
