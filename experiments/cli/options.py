"""The options of experiments, for `click`, in groups that become one value each.

Decides names, help, defaults, and how data are spelled; what the values mean is decided in
`requests`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from experiments.cli.accelerator_text import parse_emulate, parse_factors, parse_jitter
from experiments.cli.requests import (
    EvaluationRequest,
    RunRequest,
    SpreadRequest,
    SweepRequest,
    WarmupRequest,
)
from experiments.models.model_text import EXAMPLES, parse_argument
from experiments.models.workload_request import WorkloadRequest
from experiments.sweep.sweep import PROFILES, Profile
from launchers.cli.options import LAUNCHER, Decorator, option_group
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
from ps_allreduce.errors import UserError
from ps_allreduce.point.data import Digits, InputFiles, RecordFiles, Synthetic
from ps_allreduce.point.evaluation import EvaluationMode
from ps_allreduce.point.image_files import PREFIX, ImageFiles
from ps_allreduce.point.jitter import Distribution
from ps_allreduce.point.pipeline import Cache, Pipeline
from ps_allreduce.point.placement import DEFAULT_SPLIT_BYTES, Policy
from ps_allreduce.point.resources import Device
from ps_allreduce.point.spread import Coordinator, LayoutKind
from ps_allreduce.point.strategies import STRATEGIES, Horovod
from ps_allreduce.point.strategies.base import Altered, StrategySettings
from ps_allreduce.point.wire import Collective, Wire, WireType
from ps_allreduce.point.workload import Precision, Scaling
from ps_allreduce.record.exchanges import ExchangeMode

DEFAULT = Wire()


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
        raise UserError(
            f"{text!r} is neither {Synthetic().name}, {Digits().name} nor a folder of TFRecord "
            "files (python -m experiments convert makes one); loose images are "
            f"{PREFIX}FOLDER."
        )
    found = ImageFiles if text.startswith(PREFIX) else RecordFiles
    return found.found_in(Path(folder))


def _stated(option: str, kind: Any, text: str, default: object = None) -> Decorator[Any]:
    """An option that is None unless it is stated; help shows the default that holds then."""
    shown = "" if default is None else f"  [default: {default}]"
    return click.option(option, type=kind, help=text + shown)


def _given(option: str, kind: Any, text: str, default: object) -> Decorator[Any]:
    """An option that has its default where it is not stated."""
    return click.option(option, type=kind, help=text, default=default, show_default=True)


def _users_of(setting: str) -> str:
    return ", ".join(each.kind for each in STRATEGIES.values() if setting in each.understands)


def _spread(numbers: Parsed[tuple[int, ...]]) -> Decorator[Any]:
    return option_group(
        "spread",
        SpreadRequest,
        _stated("--workers-per-host", numbers, "Workers on a host, where there are several.", 1),
        _stated("--ps-per-host", WHOLE, "At most so many servers on a host."),
        _stated("--coordinator", one_of(Coordinator), "Host of the chief.", "first_worker"),
    )


#: Give a command the parameter `spread: SpreadRequest`, of one spread, or of as many as are stated.
SPREAD, SPREADS = _spread(Parsed("n", lambda text: (parse_whole(text),))), _spread(COUNTS)

#: For the function that makes the user's own model; each argument is one text.
MODEL_ARGS = click.option(
    "--model-arg",
    "model_args",
    type=Parsed("name=value", parse_argument),
    multiple=True,
    help="An argument for the function of your own model; as often as needed.",
)

_PIPELINE = option_group(
    "pipeline",
    Pipeline,
    click.option(
        "--ordered-input",
        "ordered",
        is_flag=True,
        help="Of input files: the same examples in the same step for every number of workers.",
    ),
    _stated("--parallel-reads", WHOLE, "Input files that are read at once.", "tf.data decides"),
    _stated("--parallel-maps", WHOLE, "Images that are decoded at once.", "tf.data decides"),
    _given("--prefetch", WHOLE, "Of input files: batches made beforehand.", Pipeline().prefetch),
    _given("--cache", one_of(Cache), "Where images are kept once decoded.", Cache.NONE),
    _given(
        "--shuffle",
        WHOLE,
        "Of input files: the next example is drawn from so many; 0: from one.",
        Pipeline().shuffle,
    ),
    click.option("--flips", is_flag=True, help="Mirror half of the images of input files."),
)

WORKLOAD = option_group(
    "workload",
    WorkloadRequest,
    _stated(
        "--model",
        str,
        "SmallCNN, SmallViT, SmallGPT, any name in keras.applications such as ResNet50; your own, "
        f"as {EXAMPLES}; with --emulate also BERT-base or Tensors-N-xMB.  `python -m experiments "
        "models` lists all names.",
    ),
    MODEL_ARGS,
    _stated("--image-size", WHOLE, "Pixels of the square images."),
    _stated("--num-classes", WHOLE, "Of the images.", 10),
    _stated("--batch-per-worker", WHOLE, "Examples of one forward and backward pass."),
    _given(
        "--scaling",
        one_of(Scaling),
        "With more workers each keeps the batch (weak), or all share it (strong).",
        Scaling.WEAK,
    ),
    _stated("--accumulation", WHOLE, "Batches per exchange of gradients.", 1),
    click.option(
        "--input",
        "inputs",
        type=Parsed("synthetic, digits, folder or images:folder", parse_input),
        multiple=True,
        help="What is trained with: a folder of TFRecord files, or of folders of images; a sweep "
        "takes as many as are to be compared.  [default: digits]",
    ),
    _PIPELINE,
    _stated(
        "--emulate",
        Parsed("forward,backward in s", parse_emulate),
        "Emulate an accelerator that takes so long per batch.",
    ),
    _stated(
        "--worker-factors",
        Parsed("worker:factor,...", parse_factors),
        "With --emulate: these workers, counted from 0, take so many times as long.",
    ),
    _stated(
        "--jitter",
        Parsed("distribution:variation[:seed]", parse_jitter),
        "With --emulate: every step of every worker takes so much more or less, with mean 1; "
        f"distributions {', '.join(Distribution)}.",
    ),
    _stated("--precision", one_of(Precision), "Of forward and backward pass.", "float32"),
    _given("--device", one_of(Device), "Where workers compute; a worker has one GPU.", "cpu"),
)

SPLIT_BYTES = _stated(
    "--split-bytes",
    SIZE,
    "The placement partitioned cuts larger variables.",
    f"{size_text(DEFAULT_SPLIT_BYTES)}, less for small models",
)

#: The settings of strategies that a sweep can be given; it chooses the others itself.
_OF_SWEEPS: tuple[Decorator[Any], ...] = (
    _stated("--num-ps", WHOLE, "Parameter servers."),
    _stated(
        "--layout", one_of(LayoutKind), "Servers beside workers, or on other hosts.", "colocated"
    ),
    SPLIT_BYTES,
    _stated(
        "--group-bytes",
        SIZE,
        "Tensors share a message up to so many bytes; 0: never.",
        size_text(DEFAULT.group_bytes),
    ),
    _stated(
        "--cut-bytes",
        SIZE,
        "Larger tensors are cut into messages of so many bytes; 0: never.",
        size_text(DEFAULT.cut_bytes),
    ),
    _stated("--in-flight", WHOLE, "Messages under way at once; 0: no bound.", DEFAULT.in_flight),
    _stated("--gradients", one_of(WireType), "Format on the wire.", DEFAULT.gradients),
    click.option(
        "--host-aggregation",
        is_flag=True,
        callback=lambda _, __, stated: stated or None,
        help=f"{_users_of('host_aggregation')}: workers of one host send one mean gradient.",
    ),
    _stated(
        "--staleness",
        WHOLE,
        f"{_users_of('staleness')}: steps that a worker may be ahead.",
        "no bound",
    ),
    _stated(
        "--steps-per-dispatch", WHOLE, f"{_users_of('steps_per_dispatch')}: steps in one go.", 1
    ),
    _stated(
        "--fusion-bytes",
        SIZE,
        f"{_users_of('fusion_bytes')}: gradients travel together up to so many bytes.",
        size_text(Horovod().fusion_bytes),
    ),
    _stated(
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
    _stated("--warmup-steps", WHOLE, "Warm up for so many steps, not until step times are steady."),
    _stated(
        "--warmup-s",
        Parsed("s", parse_decimal),
        "Warm up for so many seconds; with steps, until both are over.",
    ),
)


EVALUATION = option_group(
    "evaluation",
    EvaluationRequest,
    _stated(
        "--evaluation",
        one_of(EvaluationMode),
        "Who evaluates after the measured steps: the first worker, or all.",
        "distributed",
    ),
    _stated("--evaluation-batches", WHOLE, "Evaluate so many batches, of all workers together."),
)


CORES_PER_WORKER = _stated("--cores-per-worker", WHOLE, "Cores of every worker.", "an equal share")


_OF_EVERY_SWEEP: tuple[Decorator[Any], ...] = (
    _stated("--workers", COUNTS, "Numbers of workers, for instance 1,2,4."),
    CORES_PER_WORKER,
    _stated(
        "--allreduce-threads",
        COUNTS,
        "TensorFlow's threads of every worker without servers: all-reduce, and the bases.",
        "one less than its cores",
    ),
    _stated(
        "--ps-threads",
        COUNTS,
        "TensorFlow's threads of every worker with servers.",
        "one less than its cores",
    ),
    _stated("--repetitions", WHOLE, "Launches of every point, instead of as many as time allows."),
    _stated("--budget-s", Parsed("s", parse_decimal), "Time for all launches, not the profile's."),
    _stated(
        "--traced-steps",
        WHOLE,
        "Trace so many steps after the window, for a timeline; 0: none.",
        "the profile's",
    ),
    _given(
        "--exchange",
        one_of(ExchangeMode),
        "How gradients travel: in buckets; whole, which is one pack or unbucketed; or what "
        "suits links and cores. A setting of buckets, such as --in-flight, chooses buckets.",
        ExchangeMode.AUTO,
    ),
    WARMUP,
    EVALUATION,
    _given("--seed", WHOLE, "Of the order of runs.", 1),
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
    return _given("--profile", OneOf(profiles), "How long and how often is measured.", default)


#: Gives a command the parameter `run: RunRequest`.
RUN = option_group(
    "run",
    RunRequest,
    click.option("--strategy", type=OneOf(STRATEGIES), required=True, help="What is run."),
    _given("--num-workers", WHOLE, "Workers.", 1),
    _given("--cores-per-worker", WHOLE, "Cores of every worker.", 1),
    _given("--threads-per-worker", WHOLE, "TensorFlow's threads of every worker.", 1),
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
        _stated("--placement", one_of(Policy), "Of variables on servers.", "round_robin"),
        _stated("--collective", one_of(Collective), "Of all-reduce.", "ring; as shipped auto"),
        _stated("--bytes-per-pack", SIZE, "TensorFlow's packs, not buckets; 0: one pack."),
        _stated(
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
