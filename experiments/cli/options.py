"""The options that several commands share, for `click`.

Decides names and help; what they mean is decided in `given`.
"""

from __future__ import annotations

import click

from experiments.sweep.profiles import PROFILES
from launchers.options import LAUNCHER as LAUNCHER_ALONE
from launchers.options import options
from ps_allreduce.point.architectures import MODELS
from ps_allreduce.point.experiment import Device
from ps_allreduce.point.spread import Coordinator, LayoutKind
from ps_allreduce.point.wire import Wire, WireType
from ps_allreduce.point.workload import Precision

USUAL = Wire()

SPREAD = options(
    click.option("--workers-per-host", type=int, help="Where there are several hosts; usually 1."),
    click.option("--ps-per-host", type=int, help="At most so many servers on a host."),
    click.option("--coordinator", help=f"Host of the chief: {', '.join(Coordinator)}."),
)

LAUNCHER = options(LAUNCHER_ALONE, SPREAD)

WORKLOAD = options(
    click.option(
        "--model",
        help=f"One of {', '.join(MODELS)}; with --emulate also Tensors-N-xMB, N plain tensors.",
    ),
    click.option("--image-size", type=int, help="Pixels of the square images."),
    click.option("--num-classes", type=int),
    click.option("--batch-per-worker", type=int),
    click.option("--accumulation", type=int, help="Batches per synchronisation; usually 1."),
    click.option("--input", "source", help="synthetic, digits, or a folder of TFRecord files."),
    click.option(
        "--emulate",
        metavar="FORWARD,BACKWARD",
        help="Emulate an accelerator that takes so many seconds per batch.",
    ),
    click.option("--precision", help=f"Of forward and backward pass: {', '.join(Precision)}."),
    click.option(
        "--device",
        default=Device.CPU.value,
        show_default=True,
        help=f"Where workers compute: {', '.join(Device)}; a worker has one GPU.",
    ),
)

WIRE = options(
    click.option(
        "--group-bytes",
        type=int,
        help=f"Tensors share a message up to so many bytes; usually {USUAL.group_bytes}, 0: never.",
    ),
    click.option(
        "--cut-bytes",
        type=int,
        help="Larger tensors are cut into messages of so many bytes; usually "
        f"{USUAL.cut_bytes}, 0: never.",
    ),
    click.option(
        "--in-flight",
        type=int,
        help=f"Messages under way at once; usually {USUAL.in_flight}, 0: no bound.",
    ),
    click.option(
        "--gradients",
        help=f"Format on the wire: {', '.join(WireType)}; usually {USUAL.gradients}.",
    ),
    click.option(
        "--host-aggregation", is_flag=True, help="Of ps_sync: workers of one host send one mean."
    ),
)

DEALING = options(
    click.option(
        "--staleness",
        type=int,
        help="Of ps_async: steps that a worker may be ahead of the slowest; usually any number.",
    ),
    click.option("--steps-per-dispatch", type=int, help="Of ps_async: steps in one go; usually 1."),
)

SERVERS = options(
    click.option("--num-ps", type=int, help="Parameter servers."),
    click.option(
        "--layout",
        default=LayoutKind.COLOCATED.value,
        show_default=True,
        help=f"Servers beside workers or on hosts of their own: {', '.join(LayoutKind)}.",
    ),
    click.option(
        "--split-bytes",
        type=int,
        help="The policy partitioned cuts larger variables; usually 4 MB, less for small models.",
    ),
)

PROFILE = click.option(
    "--profile", default="quick", show_default=True, help=f"One of {', '.join(PROFILES)}."
)
