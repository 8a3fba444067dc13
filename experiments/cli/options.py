"""The options of experiments, for `click`, in groups that become one value each.

Decides names, help and defaults of all but what is trained (`workload_options`); what the values
mean is decided in `requests`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from experiments.cli.requests import (
    EvaluationRequest,
    RunRequest,
    SpreadRequest,
    SweepRequest,
    WarmupRequest,
)
from experiments.cli.workload_options import WORKLOAD
from experiments.sweep.sweep import PROFILES, Profile
from launchers.cli.options import (
    LAUNCHER,
    Decorator,
    given_option,
    option_group,
    stated_option,
)
from launchers.cli.types import (
    COUNTS,
    PATH,
    SIZE,
    WHOLE,
    OneOf,
    Parsed,
    one_of,
    parse_decimal,
    parse_whole,
    size_text,
)
from ps_allreduce.exchange.stacking import RowRule
from ps_allreduce.point.measurement import EvaluationMode
from ps_allreduce.point.placement import DEFAULT_SPLIT_BYTES, Policy
from ps_allreduce.point.resources import Coordinator, LayoutKind
from ps_allreduce.point.strategies import STRATEGIES, Horovod
from ps_allreduce.point.strategies.base import Altered, Embeddings, StrategySettings
from ps_allreduce.point.wire import Collective, Wire, WireType
from ps_allreduce.record.choices import ExchangeMode

DEFAULT = Wire()


def _users_of(setting: str) -> str:
    return ", ".join(each.kind for each in STRATEGIES.values() if setting in each.understands())


def _spread(numbers: Parsed[tuple[int, ...]]) -> Decorator[Any]:
    return option_group(
        "spread",
        SpreadRequest,
        stated_option(
            "--workers-per-host", numbers, "Workers on a host, where there are several.", 1
        ),
        stated_option("--ps-per-host", WHOLE, "At most so many servers on a host."),
        stated_option("--coordinator", one_of(Coordinator), "Host of the chief.", "first_worker"),
    )


#: Give a command the parameter `spread: SpreadRequest`, of one spread, or of as many as are stated.
SPREAD, SPREADS = _spread(Parsed("n", lambda text: (parse_whole(text),))), _spread(COUNTS)

SPLIT_BYTES = stated_option(
    "--split-bytes",
    SIZE,
    "The placement partitioned cuts larger variables.",
    f"{size_text(DEFAULT_SPLIT_BYTES)}, less for small models",
)

#: The settings of strategies that a sweep can be given; it chooses the others itself.
_OF_SWEEPS: tuple[Decorator[Any], ...] = (
    stated_option("--num-ps", WHOLE, "Parameter servers."),
    stated_option(
        "--layout", one_of(LayoutKind), "Servers beside workers, or on other hosts.", "colocated"
    ),
    SPLIT_BYTES,
    stated_option(
        "--group-bytes",
        SIZE,
        "Tensors share a message up to so many bytes; 0: never.",
        size_text(DEFAULT.group_bytes),
    ),
    stated_option(
        "--cut-bytes",
        SIZE,
        "Larger tensors are cut into messages of so many bytes; 0: never.",
        size_text(DEFAULT.cut_bytes),
    ),
    stated_option(
        "--in-flight", WHOLE, "Messages under way at once; 0: no bound.", DEFAULT.in_flight
    ),
    stated_option("--gradients", one_of(WireType), "Format on the wire.", DEFAULT.gradients),
    click.option(
        "--host-aggregation",
        is_flag=True,
        callback=lambda _, __, stated: stated or None,
        help=f"{_users_of('host_aggregation')}: workers of one host send one mean gradient.",
    ),
    stated_option(
        "--staleness",
        WHOLE,
        f"{_users_of('staleness')}: steps that a worker may be ahead.",
        "no bound",
    ),
    stated_option(
        "--steps-per-dispatch", WHOLE, f"{_users_of('steps_per_dispatch')}: steps in one go.", 1
    ),
    stated_option(
        "--embeddings",
        one_of(Embeddings),
        "What is exchanged of tables: all of it, or the rows looked up.",
        Embeddings.DENSE,
    ),
    stated_option(
        "--table-rows",
        one_of(RowRule),
        "Rows of tables on servers, with sparse embeddings.",
        RowRule.MODULO,
    ),
    stated_option(
        "--fusion-bytes",
        SIZE,
        f"{_users_of('fusion_bytes')}: gradients travel together up to so many bytes.",
        size_text(Horovod().fusion_bytes),
    ),
    stated_option(
        "--cycle-ms",
        Parsed("ms", parse_decimal),
        f"{_users_of('cycle_ms')}: time between two looks at what is ready.",
        Horovod().cycle_ms,
    ),
)

SWEEP_SETTINGS = option_group("settings", StrategySettings, *_OF_SWEEPS)


WARMUP = option_group(
    "warmup",
    WarmupRequest,
    stated_option(
        "--warmup-steps", WHOLE, "Warm up for so many steps, not until step times are steady."
    ),
    stated_option(
        "--warmup-s",
        Parsed("s", parse_decimal),
        "Warm up for so many seconds; with steps, until both are over.",
    ),
)


EVALUATION = option_group(
    "evaluation",
    EvaluationRequest,
    stated_option(
        "--evaluation",
        one_of(EvaluationMode),
        "Who evaluates after the measured steps: the first worker, or all.",
        "distributed",
    ),
    stated_option(
        "--evaluation-batches", WHOLE, "Evaluate so many batches, of all workers together."
    ),
)


CORES_PER_WORKER = stated_option(
    "--cores-per-worker", WHOLE, "Cores of every worker.", "an equal share"
)


_OF_EVERY_SWEEP: tuple[Decorator[Any], ...] = (
    stated_option("--workers", COUNTS, "Numbers of workers, for instance 1,2,4."),
    CORES_PER_WORKER,
    stated_option(
        "--allreduce-threads",
        COUNTS,
        "TensorFlow's threads of every worker without servers: all-reduce, and the bases.",
        "one less than its cores",
    ),
    stated_option(
        "--ps-threads",
        COUNTS,
        "TensorFlow's threads of every worker with servers.",
        "one less than its cores",
    ),
    stated_option(
        "--repetitions", WHOLE, "Launches of every point, instead of as many as time allows."
    ),
    stated_option(
        "--budget-s", Parsed("s", parse_decimal), "Time for all launches, not the profile's."
    ),
    stated_option(
        "--traced-steps",
        WHOLE,
        "Trace so many steps after the window, for a timeline; 0: none.",
        "the profile's",
    ),
    given_option(
        "--exchange",
        one_of(ExchangeMode),
        "How gradients travel: in buckets; whole, which is one pack or unbucketed; or what "
        "suits links and cores. A setting of buckets, such as --in-flight, chooses buckets.",
        ExchangeMode.AUTO,
    ),
    WARMUP,
    EVALUATION,
    given_option("--seed", WHOLE, "Of the order of runs.", 1),
    click.option(
        "--jobs-by-size",
        is_flag=True,
        help="In a batch system: a job for each number of hosts, one after the other, instead "
        "of one for all.",
    ),
    click.option(
        "--retry-failed",
        is_flag=True,
        help="Try again what has failed as often as it is tried.",
    ),
    click.option("--dry-run", is_flag=True, help="Say what would be run, and run nothing."),
)


def sweep_options(profiles: Mapping[str, Profile]) -> Decorator[Any]:
    """How a sweep is made, with one of those profiles."""
    return option_group("sweep", SweepRequest, _profile(profiles), *_OF_EVERY_SWEEP)


def _profile(profiles: Mapping[str, Profile]) -> Decorator[Any]:
    default = next(iter(profiles))
    return given_option(
        "--profile", OneOf(profiles), "How long and how often is measured.", default
    )


#: Gives a command the parameter `run: RunRequest`.
RUN = option_group(
    "run",
    RunRequest,
    click.option("--strategy", type=OneOf(STRATEGIES), required=True, help="What is run."),
    given_option("--num-workers", WHOLE, "Workers.", 1),
    given_option("--cores-per-worker", WHOLE, "Cores of every worker.", 1),
    given_option("--threads-per-worker", WHOLE, "TensorFlow's threads of every worker.", 1),
    _profile(PROFILES),
    WARMUP,
    EVALUATION,
    click.option(
        "--weights",
        type=PATH,
        help="Save the weights to this .npz file: 0000 ... at the end, initial/0000 ... at first.",
    ),
    LAUNCHER,
    SPREAD,
    WORKLOAD,
    option_group(
        "settings",
        StrategySettings,
        stated_option("--placement", one_of(Policy), "Of variables on servers.", "round_robin"),
        stated_option(
            "--collective", one_of(Collective), "Of all-reduce.", "ring; as shipped auto"
        ),
        stated_option("--bytes-per-pack", SIZE, "TensorFlow's packs, not buckets; 0: one pack."),
        stated_option(
            "--altered",
            one_of(Altered),
            f"{_users_of('altered')}: what is done as the suite does it.",
            "nothing",
        ),
        click.option(
            "--join-rounds",
            is_flag=True,
            callback=lambda _, __, stated: stated or None,
            help=f"{_users_of('join_rounds')}: wait for all workers after every round of steps.",
        ),
        *_OF_SWEEPS,
    ),
)
