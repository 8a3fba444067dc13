"""The options of experiments, for `click`, in groups that become one value each.

Options follow from declarations of settings: those of strategies (`point.strategies.base`), of
sweeps and runs (`requests`), of what is trained (`models.workload_request`).  Decides which of them
a command has.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import click

from experiments.cli.requests import (
    EvaluationRequest,
    RunRequest,
    SpreadRequest,
    SweepRequest,
    WarmupRequest,
)
from experiments.models.model_text import parse_argument
from experiments.models.workload_request import WorkloadRequest
from experiments.sweep.sweep import PROFILES, Profile
from launchers.cli.options import (
    LAUNCHER,
    Decorator,
    declared_options,
    option_group,
    together,
)
from launchers.cli.types import COUNTS, OneOf, Parsed, parse_decimal, parse_whole
from ps_allreduce.errors import UserError
from ps_allreduce.point.accelerators import Distribution, Jitter
from ps_allreduce.point.inputs.data import Digits, InputFiles, RecordFiles, Synthetic
from ps_allreduce.point.inputs.data_set import Pipeline
from ps_allreduce.point.inputs.image_files import PREFIX, ImageFiles
from ps_allreduce.point.strategies import STRATEGIES, default_of
from ps_allreduce.point.strategies.stated import StrategySettings
from ps_allreduce.point.workload import EmulatedCompute


def parse_emulate(text: str) -> EmulatedCompute:
    """An accelerator as `0.02,0.04`: seconds of the forward and of the backward pass.

    Raises:
        UserError: the text is not two numbers, or one of them makes no sense.
    """
    try:
        forward, backward = (parse_decimal(part.strip(" ")) for part in text.split(","))
    except (ValueError, UserError):  # not two, or not numbers
        raise UserError(
            f"{text!r} is not two numbers of seconds; write for instance 0.02,0.04."
        ) from None
    return EmulatedCompute(forward_s=forward, backward_s=backward)


def parse_factors(text: str) -> tuple[float, ...]:
    """The factor of every worker up to the last that is named, of `1:1.5,3:0.8`.

    Raises:
        UserError: the text is no such list, or names a worker twice.
    """
    factors: dict[int, float] = {}
    for part in text.split(","):
        match = re.fullmatch(r"([0-9]{1,5}):([0-9]+(?:\.[0-9]+)?)", part)
        if match is None:
            raise UserError(
                f"{text!r} is no list of workers with a factor each; write for instance "
                "1:1.5,3:0.8."
            )
        if int(match[1]) in factors:
            raise UserError(f"{text!r} names worker {int(match[1])} twice.")
        factors[int(match[1])] = float(match[2])
    different = [worker for worker, factor in factors.items() if factor != 1]
    return tuple(factors.get(worker, 1.0) for worker in range(max(different, default=-1) + 1))


def parse_jitter(text: str) -> Jitter:
    """Jitter as `lognormal:0.1` or, with a seed, `lognormal:0.1:7`.

    Raises:
        UserError: there is no such distribution, or a number makes no sense.
    """
    match = re.fullmatch(r"([a-z]+):([0-9]+(?:\.[0-9]+)?)(?::([0-9]+))?", text)
    if match is None or match[1] not in list(Distribution):
        raise UserError(
            f"{text!r} is no jitter; write one of {', '.join(Distribution)} and its coefficient of "
            "variation, for instance lognormal:0.1, and after a colon a seed if you like."
        )
    distribution, variation = Distribution(match[1]), float(match[2])
    return Jitter(distribution=distribution, variation=variation, seed=int(match[3] or 1))


def parse_input(text: str) -> Synthetic | Digits | InputFiles:
    """`synthetic`, `digits`, or files, which are looked at now: those of a folder.

    TFRecord files are in the folder itself; `images:` stands before one with a folder for each
    class of loose images.

    Raises:
        UserError: it is none of them.
    """
    for data in (Synthetic(), Digits()):
        if text == data.name:
            return data
    folder = text.removeprefix(PREFIX)
    if not folder or not os.path.isdir(folder):  # that of Path raises what may not be searched
        if text.startswith(PREFIX):
            raise UserError(f"{text!r}: {folder!r} is no folder; write {PREFIX}FOLDER.")
        raise UserError(
            f"{text!r} is neither {Synthetic().name}, {Digits().name} nor a folder of TFRecord "
            "files (python -m experiments convert makes one); loose images are "
            f"{PREFIX}FOLDER."
        )
    found = ImageFiles if text.startswith(PREFIX) else RecordFiles
    return found.found_in(Path(folder))


_UNITS: Mapping[str, Any] = {
    "name=value": Parsed("name=value", parse_argument),
    "input": Parsed("synthetic, digits, folder or images:folder", parse_input),
    "passes": Parsed("forward,backward in s", parse_emulate),
    "factors": Parsed("worker:factor,...", parse_factors),
    "jitter": Parsed("distribution:variation[:seed]", parse_jitter),
}

#: For the function that makes the user's own model; each argument is one text.
MODEL_ARGS = together(*declared_options(WorkloadRequest, "model_args", units=_UNITS))

#: Gives a command the parameter `workload: WorkloadRequest`.
WORKLOAD = option_group(
    "workload",
    WorkloadRequest,
    *declared_options(WorkloadRequest, units=_UNITS),
    option_group("pipeline", Pipeline, *declared_options(Pipeline)),
)


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
        help="Length and number of measurements.",
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
