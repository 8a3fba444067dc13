"""Decide which parameter server holds which variable, or which part of one.

Pure functions over names, shapes and sizes; no TensorFlow, no cluster.  The backends create
variables where a `Plan` says and report the devices back: `read_back` says what became of the plan,
and `check_devices` what is elsewhere.

All variables of a model take their turn, in creation order, as they do in TensorFlow: batch-norm
statistics count for the policies although only trainable variables are kept on the servers
(decision 0003).  Loads and `max_over_mean` are of trainable bytes, the ones that travel in every
step.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from heapq import heapreplace
from itertools import pairwise

from ps_allreduce.errors import UserError
from ps_allreduce.exchange.buckets import Part
from ps_allreduce.serialization import LATER

DEFAULT_SPLIT_BYTES = 4_000_000

#: Servers are even if the hottest one carries no more than this times the mean of all.
EVEN = 1.1

#: Parts of the usual threshold that are tried where servers are not.
SPLIT_FURTHER = (1, 2, 3, 4, 6, 8)

#: Bytes by device, as TensorFlow names it, for each position in `Plan.shards`.
Held = Mapping[int, Mapping[str, int]]


class Policy(StrEnum):
    """Rules that map variables to parameter servers."""

    ROUND_ROBIN = "round_robin"
    GREEDY = "greedy"
    LARGEST_FIRST = "largest_first"
    PARTITIONED = "partitioned"


@dataclass(frozen=True, slots=True, kw_only=True)
class VariableSpec:
    """A variable of a model, as far as placement needs it.

    Attributes:
        is_table: rows of it are looked up, and nothing else is done with it; it is trainable.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    trainable: bool
    is_table: bool = field(default=False, metadata=LATER)

    @property
    def num_bytes(self) -> int:
        """Size of the whole variable; a number format's name tells its bits, but for `bool`."""
        bits = re.search(r"\d+", self.dtype)
        return math.prod(self.shape) * (int(bits[0]) // 8 if bits else 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shard(Part):
    """A variable or a slice of one, and its size."""

    num_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Where every trainable variable goes, shards of one variable in order of their start."""

    policy: Policy
    num_ps: int
    shards: tuple[Shard, ...]

    def bytes_per_server(self) -> tuple[int, ...]:
        """Trainable bytes of each server."""
        load: Counter[int] = Counter()
        for shard in self.shards:
            load[shard.server] += shard.num_bytes
        return tuple(load[server] for server in range(self.num_ps))

    def shards_per_server(self) -> tuple[int, ...]:
        """Variables and shards of each server."""
        return tuple(
            sum(1 for shard in self.shards if shard.server == server)
            for server in range(self.num_ps)
        )

    @property
    def max_over_mean(self) -> float:
        """Trainable bytes of the hottest server over the mean of all; 1.0 is balanced."""
        load = self.bytes_per_server()
        return max(load) * self.num_ps / sum(load) if sum(load) else 1.0


def make_plan(
    policy: Policy,
    variables: Sequence[VariableSpec],
    num_ps: int,
    split_bytes: int = DEFAULT_SPLIT_BYTES,
    *,
    leaves_servers_empty: bool = False,
) -> Plan:
    """Place variables, given in creation order, on `num_ps` servers.

    Args:
        leaves_servers_empty: some server may get nothing.

    Raises:
        UserError: no server is asked for, or more than there are trainable variables or shards
            and some may not be empty; or shards of no bytes.
    """
    if num_ps < 1:
        raise UserError(f"placement needs at least 1 parameter server, got {num_ps}.")
    if policy is Policy.PARTITIONED and split_bytes < 1:
        raise UserError(f"split_bytes must be at least 1, got {split_bytes}.")
    pieces = _cut(variables, split_bytes if policy is Policy.PARTITIONED else math.inf)
    most = sum(variables[piece.variable].trainable for piece in pieces)
    if num_ps > most and not leaves_servers_empty:
        what = "shards" if policy is Policy.PARTITIONED else "trainable variables"
        raise UserError(
            f"{num_ps} parameter servers but only {most} {what} to place "
            f"(policy {policy}): choose --num-ps up to {most}."
        )
    servers = _ASSIGN[policy]([piece.num_bytes for piece in pieces], num_ps)
    placed = [
        replace(piece, server=server)
        for piece, server in zip(pieces, servers, strict=True)
        if variables[piece.variable].trainable
    ]
    return Plan(policy=policy, num_ps=num_ps, shards=tuple(placed))


def without_tables(variables: Sequence[VariableSpec]) -> list[VariableSpec]:
    """What is exchanged whole where rows are exchanged alone: tables count as not trained."""
    return [replace(spec, trainable=False) if spec.is_table else spec for spec in variables]


def servers_of_tables(policy: Policy, variables: Sequence[VariableSpec], num_ps: int) -> list[int]:
    """Of each table that stays whole: where it would be if it travelled whole.

    Nothing is cut: `partitioned` places the largest first.
    """
    uncut = Policy.LARGEST_FIRST if policy is Policy.PARTITIONED else policy
    plan = make_plan(uncut, variables, num_ps, leaves_servers_empty=True)
    servers = {shard.variable: shard.server for shard in plan.shards}
    return [servers[index] for index, spec in enumerate(variables) if spec.is_table]


def _cut(variables: Sequence[VariableSpec], split_bytes: float) -> list[Shard]:
    """Cut trainable variables above the threshold into near-equal shards; the server is open."""
    pieces: list[Shard] = []
    for index, spec in enumerate(variables):
        if spec.trainable and spec.num_bytes > split_bytes and spec.shape:
            pieces += _shards_of(index, spec, math.ceil(spec.num_bytes / split_bytes))
        else:
            pieces.append(Shard(variable=index, server=0, num_bytes=spec.num_bytes))
    return pieces


def _shards_of(index: int, spec: VariableSpec, count: int) -> list[Shard]:
    axis = best_axis(spec.shape, count)
    size = spec.shape[axis]
    row_bytes = spec.num_bytes // size
    bounds = [size * part // min(count, size) for part in range(min(count, size) + 1)]
    return [
        Shard(
            variable=index,
            axis=axis,
            start=start,
            length=stop - start,
            server=0,
            num_bytes=(stop - start) * row_bytes,
        )
        for start, stop in pairwise(bounds)
    ]


def best_axis(shape: Sequence[int], count: int) -> int:
    """The axis along which `count` near-equal slices are most alike; the first one of equals.

    The measure is the largest slice as a fraction of the whole: `ceil(size / count) / size`.
    """
    return min(range(len(shape)), key=lambda axis: math.ceil(shape[axis] / count) / shape[axis])


def _round_robin(sizes: Sequence[int], num_ps: int) -> list[int]:
    """As `ParameterServerStrategyV2Extended._create_variable_round_robin` (TensorFlow 2.21)."""
    return [index % num_ps for index in range(len(sizes))]


def _greedy(sizes: Sequence[int], num_ps: int) -> list[int]:
    """Least bytes so far, lowest index of equals, in creation order.

    As TensorFlow 1's `GreedyLoadBalancingStrategy` with `byte_size_load_fn`.
    """
    loads = [(0, server) for server in range(num_ps)]
    chosen = []
    for size in sizes:
        load, server = loads[0]
        heapreplace(loads, (load + size, server))
        chosen.append(server)
    return chosen


def _largest_first(sizes: Sequence[int], num_ps: int) -> list[int]:
    """Greedy over sizes in descending order (Graham's longest-processing-time rule, 1969)."""
    order = sorted(range(len(sizes)), key=lambda index: -sizes[index])
    servers = _greedy([sizes[index] for index in order], num_ps)
    chosen = [0] * len(sizes)
    for index, server in zip(order, servers, strict=True):
        chosen[index] = server
    return chosen


_ASSIGN: dict[Policy, Callable[[Sequence[int], int], list[int]]] = {
    Policy.ROUND_ROBIN: _round_robin,
    Policy.GREEDY: _greedy,
    Policy.LARGEST_FIRST: _largest_first,
    Policy.PARTITIONED: _largest_first,
}


def possible_plans(
    variables: Sequence[VariableSpec], num_ps: int, split_bytes: int = DEFAULT_SPLIT_BYTES
) -> list[Plan]:
    """Those of all policies under which every server gets something.

    Raises:
        UserError: there is none.
    """
    plans: list[Plan] = []
    for policy in Policy:
        try:
            plans.append(make_plan(policy, variables, num_ps, split_bytes))
        except UserError:
            if policy is Policy.PARTITIONED:  # then no other is possible either
                raise
    return plans


def suggest(plans: Sequence[Plan]) -> Plan:
    """The most balanced plan; of those within 2 % of it, the one that cuts least.

    A more even placement that needs more shards costs more messages, so a gain below 2 % of the
    hottest server's load is not worth it.
    """
    best = min(plan.max_over_mean for plan in plans)
    good = [plan for plan in plans if plan.max_over_mean <= best * 1.02]
    return min(good, key=lambda plan: (len(plan.shards), plan.max_over_mean))


def default_split_bytes(variables: Sequence[VariableSpec], num_ps: int) -> int:
    """The threshold of `partitioned` where none is asked for.

    4 MB, which large models are usually cut by (BytePS: 4,096,000 bytes), or half of a server's
    fair share if that is less.  Where servers are not even then, a part of that, because more
    shards cost more messages: the largest with which they are, else the one that is most even.
    """
    share = sum(spec.num_bytes for spec in variables if spec.trainable) // max(1, num_ps)
    whole = min(DEFAULT_SPLIT_BYTES, share // 2)
    thresholds = [max(1, whole // parts) for parts in SPLIT_FURTHER]

    def unevenness(threshold: int) -> float:
        try:
            return make_plan(Policy.PARTITIONED, variables, num_ps, threshold).max_over_mean
        except UserError:  # fewer shards than servers
            return math.inf

    even = next((each for each in thresholds if unevenness(each) <= EVEN), None)
    return even or min(thresholds, key=unevenness)


def useful_servers(variables: Sequence[VariableSpec]) -> int:
    """How many servers can share the load while variables stay whole.

    Source: hottest server >= largest variable, so more than ceil(total / largest) servers cannot
    lower the hottest server's load.
    """
    sizes = [spec.num_bytes for spec in variables if spec.trainable]
    return math.ceil(sum(sizes) / max(sizes))


def better_num_ps(
    policy: Policy, variables: Sequence[VariableSpec], num_ps: int, split_bytes: int
) -> int:
    """The number of servers up to `num_ps` whose hottest server carries least; the fewest of those.

    Differences below 2 % count as equal.

    Raises:
        UserError: there is too little to place for so many.
    """
    hottest = {
        count: max(make_plan(policy, variables, count, split_bytes).bytes_per_server())
        for count in range(1, num_ps + 1)
    }
    least = min(hottest.values())
    return min(count for count, load in hottest.items() if load <= least * 1.02)


def server_of(device: str) -> int | None:
    """The parameter server that a device string of TensorFlow names; None if it names none."""
    found = re.match(r"/job:ps/replica:\d+/task:(\d+)/", device)
    return int(found[1]) if found else None


def read_back(plan: Plan, held: Held) -> Plan:
    """The plan as it came out: every part of a shard on the server that its device names.

    Parts that are on no server are left out; `check_devices` tells of them.
    """
    shards = [
        replace(shard, server=server, num_bytes=num_bytes)
        for position, shard in enumerate(plan.shards)
        for device, num_bytes in held.get(position, {}).items()
        if (server := server_of(device)) is not None
    ]
    return replace(plan, shards=tuple(shards))


def check_devices(plan: Plan, held: Held) -> list[str]:
    """One sentence for every shard of which not all is where it was planned to be."""
    problems = []
    for position, shard in enumerate(plan.shards):
        parts = held.get(position, {})
        there = sum(size for device, size in parts.items() if server_of(device) == shard.server)
        if (there, len(parts)) != (shard.num_bytes, 1):
            places = [f"{size} bytes on {device!r}" for device, size in parts.items()]
            problems.append(
                f"variable {shard.variable} (from {shard.start}) was planned on ps:{shard.server} "
                f"with {shard.num_bytes} bytes but is with {' and '.join(places) or 'no device'}"
            )
    return problems
