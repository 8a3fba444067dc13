"""Commands that ask about a model and train nothing: `placement` and `doctor`.

`placement` goes from a model's name to where its variables would go, as text.  Decides in which
size a model is described, and what is said: every policy on one line, and a suggestion.  Of rows of
tables every way to place them is told, by the rows that are asked for: a server may hold as much as
all others and hold the popular rows.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import click

from experiments import surroundings
from experiments.cli.experiment_options import MODEL_ARGS, SPLIT_BYTES
from experiments.models.settle_model import settle_model
from experiments.models.workload_request import WorkloadRequest
from experiments.studies.defaults import OwnTraining
from experiments.sweep.progress import plain_console
from launchers.cli.options import LAUNCHER, BriefCommand
from launchers.cli.types import WHOLE
from launchers.doctor.command import look_at_hosts
from launchers.run.launcher import HostsLauncher
from launchers.settings import LauncherSettings
from ps_allreduce.errors import UserError, at_least
from ps_allreduce.exchange.stacking import RowRule, Stack
from ps_allreduce.point.models import shipped_model
from ps_allreduce.point.models.recommenders import RecommenderModel
from ps_allreduce.point.models.trained import ImageModel
from ps_allreduce.point.models.weights import Weights
from ps_allreduce.point.placement import (
    Plan,
    Policy,
    VariableSpec,
    better_num_ps,
    default_split_bytes,
    make_plan,
    possible_plans,
    suggest,
    useful_servers,
)
from ps_allreduce.point.strategies.base import Servers
from ps_allreduce.point.workload import EmulatedCompute, Workload
from ps_allreduce.record.variables import RowsAsked
from ps_allreduce.scratch import scratch_parent
from ps_allreduce.terminal import echo

#: Of the images that the architectures of `keras.applications` were designed for.
IMAGENET_CLASSES = 1000


@click.command()
@click.option(
    "--model",
    default="ResNet50",
    show_default=True,
    help="A name (the command models lists all), or yours.",
)
@MODEL_ARGS
@click.option("--num-ps", type=WHOLE, default=2, show_default=True, help="Parameter servers.")
@click.option(
    "--batch-per-worker",
    type=WHOLE,
    help="Examples of a batch that looks rows up.  [default: of the model]",
)
@click.option(
    "--image-size", type=WHOLE, help="Pixels of an image.  [default: as the model was designed]"
)
@click.option("--num-classes", type=WHOLE, help="Classes of the images.  [default: 1000]")
@SPLIT_BYTES
def placement(
    model: str,
    model_args: tuple[str, ...],
    num_ps: int,
    batch_per_worker: int | None,
    image_size: int | None,
    num_classes: int | None,
    split_bytes: int | None,
) -> None:
    """Show where variables would go under every placement; trains nothing."""
    Servers(num_ps=num_ps)
    if split_bytes is not None:
        at_least(1, split_bytes=split_bytes)
    asked = WorkloadRequest(
        model=model,
        model_args=model_args,
        image_size=image_size,
        num_classes=num_classes,
        batch_per_worker=batch_per_worker,
    )
    with tempfile.TemporaryDirectory(dir=scratch_parent()) as folder:
        asked = settle_model(asked, Path(folder), plain_console())
        variables, placed = _looked_at(asked, Path(folder), num_ps)
    if split_bytes is None:
        split_bytes = default_split_bytes(variables, num_ps)
    echo(render_placements(model, variables, num_ps, split_bytes))
    if placed:
        drawn_evenly = isinstance(asked.model, OwnTraining) and not asked.model.model.has_dataset
        echo("\n" + render_rows(placed, drawn_evenly=drawn_evenly))


def _looked_at(
    asked: WorkloadRequest, results: Path, num_ps: int
) -> tuple[Sequence[VariableSpec], list[PlacedRows]]:
    """The variables of a model, in the size that it was designed for, and where rows could be."""
    workload = _workload(asked)
    if isinstance(workload, Weights):
        return workload.variables, []
    with surroundings.this_machine(results) as launcher:
        variables = launcher.describe(workload)
        if workload.sparse_refusal() or not any(spec.is_table for spec in variables):
            return variables, []
        return variables, counted_rows(launcher, workload, variables, num_ps)


def _workload(asked: WorkloadRequest) -> Workload | Weights:
    """What would be trained; weights alone need nothing that builds them."""
    if isinstance(asked.model, OwnTraining):
        return asked.workload(asked.model)
    shipped = shipped_model(asked.model or "")
    if isinstance(shipped, RecommenderModel):
        return asked.workload(shipped.name)
    if isinstance(shipped, ImageModel):
        shipped = replace(shipped, num_classes=IMAGENET_CLASSES)
    sized = asked.sized(shipped)
    return sized if isinstance(sized, Weights) else Workload(model=sized)


def render_placements(
    model: str, variables: Sequence[VariableSpec], num_ps: int, split_bytes: int
) -> str:
    """What every policy would do with a model on `num_ps` servers.

    Raises:
        UserError: under every policy some server would get nothing.
    """
    plans = possible_plans(variables, num_ps, split_bytes)
    impossible = [policy for policy in Policy if policy not in {plan.policy for plan in plans}]
    trainable = [spec for spec in variables if spec.trainable]
    total = sum(spec.num_bytes for spec in trainable)
    largest = max(trainable, key=lambda spec: spec.num_bytes)
    unit = "kB" if total < UNITS["MB"] else "MB"
    lines = [
        f"{model}: {len(trainable)} trainable variables, {total / UNITS[unit]:.1f} {unit}; "
        f"largest {largest.name} with {largest.num_bytes / UNITS[unit]:.1f} {unit}; "
        f"{num_ps} servers",
        "",
        f"{'policy':<14} {'max/mean':>8}  {unit} (variables or shards) per server",
        *(
            f"{policy:<14} {'-':>8}  impossible: more servers than variables"
            for policy in impossible
        ),
        *(_plan_line(plan, unit) for plan in plans),
        "",
        *_suggestion(variables, plans, split_bytes, unit),
    ]
    return "\n".join(lines)


#: Bytes; a table has one of them, so that its numbers compare.
UNITS = {"kB": 1e3, "MB": 1e6}


def _plan_line(plan: Plan, unit: str) -> str:
    loads = zip(plan.bytes_per_server(), plan.shards_per_server(), strict=True)
    servers = "  ".join(f"{load / UNITS[unit]:.2f} ({count})" for load, count in loads)
    return f"{plan.policy:<14} {plan.max_over_mean:>8.2f}  {servers}"


def _suggestion(
    variables: Sequence[VariableSpec], plans: Sequence[Plan], split_bytes: int, unit: str
) -> list[str]:
    num_ps = plans[0].num_ps
    best = suggest(plans)
    lines = [
        f"Suggested: {best.policy} (max/mean {best.max_over_mean:.2f}, {len(best.shards)} "
        "variables or shards)."
    ]
    limit = useful_servers(variables)
    if limit < num_ps:
        lines.append(
            f"With whole variables no more than {limit} servers can share the load of this model; "
            "more help only with partitioned."
        )
    for plan in plans:
        better = better_num_ps(plan.policy, variables, num_ps, split_bytes)
        if better < num_ps:
            fewer = make_plan(plan.policy, variables, better, split_bytes)
            lines.append(
                f"{plan.policy}: the hottest of {num_ps} servers holds {_hottest(plan, unit)}, "
                f"with --num-ps {better} it holds {_hottest(fewer, unit)}: more servers hardly "
                f"help, so use {better} or another policy."
            )
    return lines


def _hottest(plan: Plan, unit: str) -> str:
    return f"{max(plan.bytes_per_server()) / UNITS[unit]:.2f} {unit}"


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


#: Where weights alone are built: how long steps with them would take plays no part.
SOME_ACCELERATOR = EmulatedCompute(forward_s=0.02, backward_s=0.04)


@click.command(cls=BriefCommand)
@click.option("--model", required=True, help="A name (the command models lists all), or yours.")
@MODEL_ARGS
@LAUNCHER
def doctor(model: str, model_args: tuple[str, ...], launcher: LauncherSettings) -> int:
    """Find what is wrong with the hosts, and whether each of them can build a model.

    Your own model is tried on this machine first.  Exit status: 0 no failure, 1 a failure, 2 a
    mistake in the request or a model that cannot be trained.
    """
    asked = WorkloadRequest(model=model, model_args=model_args)
    asked = settle_model(asked, launcher.results, plain_console())
    return look_at_hosts(launcher, _built(asked))


def _built(asked: WorkloadRequest) -> Workload:
    """What is built on every host."""
    model = asked.model
    assert model is not None
    if isinstance(model, str) and not shipped_model(model).computes:
        asked = replace(asked, emulate=SOME_ACCELERATOR)
    return asked.workload(model)
