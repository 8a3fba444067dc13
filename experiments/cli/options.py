"""The options of experiments, for `click`, in groups that become one value each.

Options follow from declarations of settings: those of strategies (`point.strategies.base`), of
sweeps and runs (`requests`), of what is trained (`workload_options`).  Decides which of them a
command has.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
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
    declared_options,
    option_group,
    together,
)
from launchers.cli.types import COUNTS, OneOf, Parsed, parse_whole
from ps_allreduce.point.strategies import STRATEGIES, default_of
from ps_allreduce.point.strategies.stated import StrategySettings

#: The settings of strategies that a sweep chooses itself.
_CHOSEN = {"placement", "collective", "bytes_per_pack", "altered", "join_rounds"}


def _users_of(setting: str) -> str:
    users = (each.kind for each in STRATEGIES.values() if setting in each.understands())
    return f"{', '.join(users)}: "


def _settings(*names: str) -> list[Decorator[Any]]:
    return declared_options(StrategySettings, *names, begin=_users_of, default=default_of)


def _spread(numbers: Parsed[tuple[int, ...]]) -> Decorator[Any]:
    options = declared_options(SpreadRequest, units={"counts": numbers})
    return option_group("spread", SpreadRequest, *options)


#: Give a command the parameter `spread: SpreadRequest`, of one spread, or of as many as are stated.
SPREAD, SPREADS = _spread(Parsed("n", lambda text: (parse_whole(text),))), _spread(COUNTS)

SPLIT_BYTES = together(*_settings("split_bytes"))

SWEEP_SETTINGS = option_group(
    "settings",
    StrategySettings,
    *_settings(*(each.name for each in fields(StrategySettings) if each.name not in _CHOSEN)),
)

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
    return click.option(
        "--profile",
        type=OneOf(profiles),
        default=next(iter(profiles)),
        show_default=True,
        help="How long and how often is measured.",
    )


#: Gives a command the parameter `run: RunRequest`.
RUN = option_group(
    "run",
    RunRequest,
    click.option("--strategy", type=OneOf(STRATEGIES), required=True, help="What is run."),
    *declared_options(RunRequest),
    _profile(PROFILES),
    WARMUP,
    EVALUATION,
    LAUNCHER,
    SPREAD,
    WORKLOAD,
    option_group("settings", StrategySettings, *_settings()),
)
