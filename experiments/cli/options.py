"""The options of experiments, for `click`, in groups that become one value each.

Decides names, help and defaults; what the values mean is decided in `requests`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from experiments.cli.requests import RunRequest, SpreadRequest, SweepRequest, WorkloadRequest
from experiments.cli.types import EMULATE, INPUT
from experiments.sweep.profiles import PROFILES, Profile
from launchers.cli.options import Decorator, option_group
from launchers.cli.types import COUNTS, SIZE, OneOf, one_of
from ps_allreduce.point.architectures import ARCHITECTURES
from ps_allreduce.point.placement import Policy
from ps_allreduce.point.resources import Device
from ps_allreduce.point.spread import Coordinator, LayoutKind
from ps_allreduce.point.strategies import STRATEGIES
from ps_allreduce.point.strategies.base import StrategySettings
from ps_allreduce.point.wire import Collective, Wire, WireType
from ps_allreduce.point.workload import Precision

DEFAULT = Wire()


def _stated(option: str, kind: Any, text: str, default: object = None) -> Decorator[Any]:
    """An option that is None unless it is stated; help shows the default that holds then."""
    shown = "" if default is None else f"  [default: {default}]"
    return click.option(option, type=kind, help=text + shown)


def _users_of(setting: str) -> str:
    return ", ".join(each.kind for each in STRATEGIES.values() if setting in each.understands)


SPREAD = option_group(
    "spread",
    SpreadRequest,
    _stated("--workers-per-host", int, "Workers on a host, where there are several.", 1),
    _stated("--ps-per-host", int, "At most so many servers on a host."),
    _stated("--coordinator", one_of(Coordinator), "Host of the chief.", "first_worker"),
)

WORKLOAD = option_group(
    "workload",
    WorkloadRequest,
    _stated(
        "--model",
        str,
        f"One of {', '.join(ARCHITECTURES)}; with --emulate also Tensors-N-xMB, N equal tensors.",
    ),
    _stated("--image-size", int, "Pixels of the square images."),
    _stated("--num-classes", int, "Of the images.", 10),
    _stated("--batch-per-worker", int, "Examples of one forward and backward pass."),
    _stated("--accumulation", int, "Batches per exchange of gradients.", 1),
    _stated("--input", INPUT, "What is trained with.", "digits"),
    _stated("--emulate", EMULATE, "Emulate an accelerator that takes so long per batch."),
    _stated("--precision", one_of(Precision), "Of forward and backward pass.", "float32"),
    click.option(
        "--device",
        type=one_of(Device),
        default=Device.CPU.value,
        show_default=True,
        help="Where workers compute; a worker has one GPU.",
    ),
)

SPLIT_BYTES = _stated(
    "--split-bytes",
    SIZE,
    "The placement partitioned cuts larger variables.",
    "4MB, less for small models",
)

#: The settings of strategies that a sweep can be given; it chooses the others itself.
_OF_SWEEPS: tuple[Decorator[Any], ...] = (
    _stated("--num-ps", int, "Parameter servers."),
    _stated(
        "--layout", one_of(LayoutKind), "Servers beside workers, or on other hosts.", "colocated"
    ),
    SPLIT_BYTES,
    _stated(
        "--group-bytes",
        SIZE,
        "Tensors share a message up to so many bytes; 0: never.",
        DEFAULT.group_bytes,
    ),
    _stated(
        "--cut-bytes",
        SIZE,
        "Larger tensors are cut into messages of so many bytes; 0: never.",
        DEFAULT.cut_bytes,
    ),
    _stated("--in-flight", int, "Messages under way at once; 0: no bound.", DEFAULT.in_flight),
    _stated("--gradients", one_of(WireType), "Format on the wire.", DEFAULT.gradients),
    click.option(
        "--host-aggregation",
        is_flag=True,
        callback=lambda _, __, stated: stated or None,
        help=f"{_users_of('host_aggregation')}: workers of one host send one mean gradient.",
    ),
    _stated(
        "--staleness",
        int,
        f"{_users_of('staleness')}: steps that a worker may be ahead.",
        "no bound",
    ),
    _stated("--steps-per-dispatch", int, f"{_users_of('steps_per_dispatch')}: steps in one go.", 1),
)

SWEEP_SETTINGS = option_group("settings", StrategySettings, *_OF_SWEEPS)

RUN_SETTINGS = option_group(
    "settings",
    StrategySettings,
    _stated("--placement", one_of(Policy), "Of variables on servers.", "round_robin"),
    _stated("--collective", one_of(Collective), "Of all-reduce.", "ring"),
    _stated("--bytes-per-pack", SIZE, "TensorFlow's packs, not buckets; 0: one pack."),
    *_OF_SWEEPS,
)


def sweep_options(profiles: Mapping[str, Profile]) -> Decorator[Any]:
    """How a sweep is made, with one of those profiles."""
    return option_group(
        "sweep",
        SweepRequest,
        _profile(profiles),
        _stated("--workers", COUNTS, "Numbers of workers, for instance 1,2,4."),
        _stated("--cores-per-worker", int, "Cores of every worker.", "an equal share"),
        _stated("--repetitions", int, "Launches of every point, instead of the profile's."),
        click.option(
            "--seed", type=int, default=1, show_default=True, help="Of the order of runs."
        ),
        click.option(
            "--jobs-by-size",
            is_flag=True,
            help="In a batch system: a job for each number of hosts, one after the other, instead "
            "of one for all.",
        ),
        click.option("--dry-run", is_flag=True, help="Say what would be run, and run nothing."),
    )


def _profile(profiles: Mapping[str, Profile]) -> Decorator[Any]:
    return click.option(
        "--profile",
        type=OneOf(dict(profiles)),
        default=next(iter(profiles)),
        show_default=True,
        help="How long and how often is measured.",
    )


RUN = option_group(
    "run",
    RunRequest,
    click.option("--strategy", type=OneOf(dict(STRATEGIES)), required=True, help="What is run."),
    click.option("--num-workers", type=int, default=1, show_default=True, help="Workers."),
    click.option(
        "--cores-per-worker", type=int, default=1, show_default=True, help="Cores of every worker."
    ),
    click.option(
        "--threads-per-worker",
        type=int,
        default=1,
        show_default=True,
        help="TensorFlow's threads of every worker.",
    ),
    _profile(PROFILES),
    click.option("--weights", type=Path, help="Save the final weights to this file (.npz)."),
)
