"""The options that several commands share, for `click`.

Decides names and help; what they mean is decided in `given`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from experiments.profiles import PROFILES
from launchers import LAUNCHERS
from ps_allreduce.models import MODELS
from ps_allreduce.spread import Coordinator, LayoutKind

F = TypeVar("F", bound=Callable[..., Any])


def options(*decorators: Callable[[F], F]) -> Callable[[F], F]:
    """Several options as one decorator, in the order in which help shows them."""

    def decorate(function: F) -> F:
        for decorator in reversed(decorators):
            function = decorator(function)
        return function

    return decorate


WHERE = options(
    click.option(
        "--launcher",
        default="local",
        show_default=True,
        help=f"How tasks are started: {', '.join(LAUNCHERS)}.",
    ),
    click.option(
        "--results", type=Path, default=Path("results"), show_default=True, help="Results folder."
    ),
    click.option("--allow-login-node", is_flag=True, help="Train on a cluster's login node."),
    click.option(
        "--interface", metavar="NAME|SUBNET", help="Network whose addresses the tasks use."
    ),
    click.option("--workers-per-host", type=int, help="Where there are several hosts; usually 1."),
    click.option("--ps-per-host", type=int, help="At most so many servers on a host."),
    click.option("--coordinator", help=f"Host of the chief: {', '.join(Coordinator)}."),
    click.option("--mixed-hosts", is_flag=True, help="Run on hosts of different kinds."),
)

EMULATED = options(
    click.option("--hosts", type=int, help="emulated, slurm: number of hosts."),
    click.option("--bandwidth", help="emulated: of every link and direction, as 1gbit."),
    click.option("--delay", help="emulated: from host to host, one way, as 1ms."),
    click.option("--slow-host", type=int, help="emulated: a host with a slower link, from 0."),
    click.option("--slow-bandwidth", help="emulated: of that host's link."),
    click.option("--racks", type=int, help="emulated: 1 or 2."),
    click.option("--uplink", help="emulated: bandwidth between two racks."),
)

SLURM = options(
    click.option("--partition", help="slurm: as sbatch takes it."),
    click.option("--account", help="slurm: as sbatch takes it."),
    click.option("--time", "time_limit", help="slurm: limit of the job; estimated if not given."),
    click.option("--constraint", help="slurm: as sbatch takes it."),
    click.option("--gpus-per-node", help="slurm: as sbatch takes it."),
    click.option("--sbatch", "sbatch", multiple=True, help="slurm: any further option of sbatch."),
    click.option("--setup", multiple=True, help="slurm: line of the batch script (module load X)."),
    click.option("--container", help="slurm, ssh: prefix of commands (apptainer exec image.sif)."),
    click.option("--shared-nodes", is_flag=True, help="slurm: do not ask for whole nodes."),
)

SSH = options(
    click.option(
        "--host-file",
        type=Path,
        help="ssh: a host per line, with its address in the "
        "cluster's own network where that differs.",
    ),
)

LAUNCHER = options(WHERE, EMULATED, SLURM, SSH)

WORKLOAD = options(
    click.option("--model", help=f"One of {', '.join(MODELS)}."),
    click.option("--image-size", type=int, help="Pixels of the square images."),
    click.option("--num-classes", type=int),
    click.option("--batch-per-worker", type=int),
    click.option("--accumulation", type=int, help="Batches per synchronisation."),
    click.option("--input", "source", help="synthetic, digits, or a folder of TFRecord files."),
    click.option(
        "--emulate",
        metavar="FORWARD,BACKWARD",
        help="Emulate an accelerator that takes so many seconds per batch.",
    ),
)

SERVERS = options(
    click.option("--num-ps", type=int, help="Parameter servers."),
    click.option("--layout", default=LayoutKind.COLOCATED.value, show_default=True),
    click.option(
        "--split-bytes",
        type=int,
        help="The policy partitioned cuts larger variables; usually 4 MB, less for small models.",
    ),
)

PROFILE = click.option(
    "--profile", default="quick", show_default=True, help=f"One of {', '.join(PROFILES)}."
)
