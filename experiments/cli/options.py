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
    RareOption,
    declared_options,
    given_option,
    option_group,
    stated_option,
    together,
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
from ps_allreduce.point.placement import DEFAULT_SPLIT_BYTES, Policy
from ps_allreduce.point.resources import Coordinator, LayoutKind
from ps_allreduce.point.strategies import STRATEGIES, Horovod
from ps_allreduce.point.strategies.base import Altered, Embeddings, StrategySettings
from ps_allreduce.point.wire import Collective, Wire, WireType

DEFAULT = Wire()


def _users_of(setting: str) -> str:
    return ", ".join(each.kind for each in STRATEGIES.values() if setting in each.understands())


def _spread(numbers: Parsed[tuple[int, ...]]) -> Decorator[Any]:
    return option_group(
        "spread",
        SpreadRequest,
        stated_option(
            "--workers-per-host",
            numbers,
            "Workers on a host, where there are several.",
            1,
            usual=True,
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
    stated_option("--num-ps", WHOLE, "Parameter servers.", usual=True),
    stated_option(
        "--layout",
        one_of(LayoutKind),
        "Servers beside workers, or on other hosts.",
        "colocated",
        usual=True,
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
        cls=RareOption,
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


WARMUP = option_group("warmup", WarmupRequest, *declared_options(WarmupRequest))

EVALUATION = option_group("evaluation", EvaluationRequest, *declared_options(EvaluationRequest))

_OF_EVERY_SWEEP: tuple[Decorator[Any], ...] = (
    *declared_options(SweepRequest),
    WARMUP,
    EVALUATION,
)

CORES_PER_WORKER = together(*declared_options(SweepRequest, "cores_per_worker"))


def sweep_options(profiles: Mapping[str, Profile]) -> Decorator[Any]:
    """How a sweep is made, with one of those profiles."""
    return option_group("sweep", SweepRequest, _profile(profiles), *_OF_EVERY_SWEEP)


def _profile(profiles: Mapping[str, Profile]) -> Decorator[Any]:
    default = next(iter(profiles))
    return given_option(
        "--profile", OneOf(profiles), "How long and how often is measured.", default, usual=True
    )


#: Gives a command the parameter `run: RunRequest`.
RUN = option_group(
    "run",
    RunRequest,
    click.option("--strategy", type=OneOf(STRATEGIES), required=True, help="What is run."),
    given_option("--num-workers", WHOLE, "Workers.", 1, usual=True),
    given_option("--cores-per-worker", WHOLE, "Cores of every worker.", 1, usual=True),
    given_option(
        "--threads-per-worker", WHOLE, "TensorFlow's threads of every worker.", 1, usual=True
    ),
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
        stated_option(
            "--placement", one_of(Policy), "Of variables on servers.", "round_robin", usual=True
        ),
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
            cls=RareOption,
            is_flag=True,
            callback=lambda _, __, stated: stated or None,
            help=f"{_users_of('join_rounds')}: wait for all workers after every round of steps.",
        ),
        *_OF_SWEEPS,
    ),
)
