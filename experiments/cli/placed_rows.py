"""Where rows of tables would be, and how many of them a worker would ask each server for, as text.

Decides which ways to place rows are told.  Balance is that of the rows that are asked for: a server
may hold as much as all others and hold the popular rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from launchers.run.launcher import HostsLauncher
from ps_allreduce.errors import UserError
from ps_allreduce.exchange.stacking import RowRule, Stack
from ps_allreduce.point.placement import Policy, VariableSpec
from ps_allreduce.point.strategies.base import Servers
from ps_allreduce.point.workload import Workload
from ps_allreduce.record.variables import RowsAsked

#: Under these, whole tables go to other servers.
WHOLE_BY = (Policy.ROUND_ROBIN, Policy.GREEDY, Policy.LARGEST_FIRST)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedRows:
    """One way to place rows of tables.

    Attributes:
        name: of the settings that ask for it.
        examples: of a worker's step.
        refusal: why it cannot be had; empty if it can.
    """

    name: str
    stack: Stack
    asked: RowsAsked
    examples: int
    refusal: str

    @property
    def max_over_mean(self) -> float:
        """Rows asked of the hottest server over the mean."""
        return self.asked.hot_shard or 1.0


def counted_rows(
    launcher: HostsLauncher, workload: Workload, variables: Sequence[VariableSpec], num_ps: int
) -> list[PlacedRows]:
    """Every way, with what a worker's first batches look up."""
    ways = list(_ways(num_ps))
    stacks = [stack for servers in ways if (stack := servers.stack(variables)) is not None]
    asked = launcher.count_rows(workload, ways)
    return [
        PlacedRows(
            name=_name_of(servers),
            stack=stack,
            asked=each,
            examples=workload.batch_per_worker,
            refusal=_refusal(servers, variables),
        )
        for servers, stack, each in zip(ways, stacks, asked, strict=True)
    ]


def _ways(num_ps: int) -> Iterator[Servers]:
    for rule in RowRule:
        for policy in WHOLE_BY if rule is RowRule.WHOLE else (Policy.ROUND_ROBIN,):
            yield Servers(num_ps=num_ps, placement=policy, table_rows=rule)


def _name_of(servers: Servers) -> str:
    whole = servers.table_rows is RowRule.WHOLE
    return f"{servers.table_rows}, {servers.placement}" if whole else str(servers.table_rows)


def _refusal(servers: Servers, variables: Sequence[VariableSpec]) -> str:
    try:
        servers.plan(variables)
    except UserError as error:
        return str(error)
    return ""


def render_rows(ways: Sequence[PlacedRows], *, drawn_evenly: bool) -> str:
    """A line for every way, and a suggestion.

    Args:
        drawn_evenly: the suite has drawn the ids, and knows nothing of their popularity.
    """
    asked, stack, examples = ways[0].asked, ways[0].stack, ways[0].examples
    count = len(stack.rows)
    possible = [way for way in ways if not way.refusal]
    lines = [
        f"With --embeddings sparse, a step of {examples} examples looks up {asked.unique:.0f} "
        f"different rows ({asked.unique * asked.row_bytes / 1e6:.3g} MB) of the "
        f"{sum(stack.rows):,} in {count} table{'s' * (count > 1)}:",
        "",
        f"{'--table-rows':<22} {'max/mean':>8}  rows asked of each server (MB held)",
        *(_line(way) for way in ways),
    ]
    if possible:
        best = min(possible, key=_preference)
        lines += ["", f"Suggested: {best.name} (max/mean {best.max_over_mean:.2f} in rows asked)."]
    else:
        lines += ["", ways[0].refusal]
    if drawn_evenly:
        lines.append(
            "These ids are drawn evenly, so no server is hot: write dataset() for those of yours."
        )
    return "\n".join(lines)


def _preference(way: PlacedRows) -> tuple[float, bool]:
    """The most even; of those that few batches do not tell apart, the default."""
    return round(way.max_over_mean, 1), way.stack.rule is not RowRule.MODULO


def _line(way: PlacedRows) -> str:
    if way.refusal:
        return f"{way.name:<22} {'-':>8}  impossible: some server would hold nothing"
    held = [rows * way.asked.row_bytes / 1e6 for rows in way.stack.rows_by_server()]
    servers = zip(way.asked.per_server, held, strict=True)
    told = "  ".join(f"{rows:.0f} ({megabytes:.2f})" for rows, megabytes in servers)
    return f"{way.name:<22} {way.max_over_mean:>8.2f}  {told}"
