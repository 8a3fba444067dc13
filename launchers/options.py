"""What every launcher can be told on a command line, and what was typed as settings.

Decides names and help of these options, for `click`, and what they mean.  `given` holds the options
by name, None for what was not typed; every mistake is a `UserError` with the valid choices.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from launchers import EMULATED, LAUNCHERS, SLURM
from launchers.settings import LauncherSettings
from ps_allreduce.errors import UserError
from ps_allreduce.point.network import EmulatedNetwork, parse_delay, parse_rate

F = TypeVar("F", bound=Callable[..., Any])

#: Options that describe an emulated network.
NETWORK_OPTIONS = (
    *("hosts", "bandwidth", "delay", "slow_host", "slow_bandwidth", "racks", "uplink"),
)


#: Options that describe a job to be submitted.
JOB_OPTIONS = (
    *("partition", "account", "time_limit", "constraint", "gpus_per_node", "sbatch", "setup"),
)


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
    click.option("--mixed-hosts", is_flag=True, help="Run on hosts of different kinds."),
)

EMULATED_HOSTS = options(
    click.option("--hosts", type=int, help="emulated, slurm: number of hosts."),
    click.option("--bandwidth", help="emulated: of every link and direction, as 1gbit."),
    click.option("--delay", help="emulated: from host to host, one way, as 1ms."),
    click.option("--slow-host", type=int, help="emulated: a host with a slower link, from 0."),
    click.option("--slow-bandwidth", help="emulated: of that host's link."),
    click.option("--racks", type=int, help="emulated: 1 or 2."),
    click.option("--uplink", help="emulated: bandwidth between two racks."),
)

SLURM_JOB = options(
    click.option("--partition", help="slurm: as sbatch takes it."),
    click.option("--account", help="slurm: as sbatch takes it."),
    click.option("--time", "time_limit", help="slurm: limit of the job; estimated if not given."),
    click.option("--constraint", help="slurm: as sbatch takes it."),
    click.option("--gpus-per-node", help="slurm: as sbatch takes it."),
    click.option("--sbatch", "sbatch", multiple=True, help="slurm: any further option of sbatch."),
    click.option("--setup", multiple=True, help="slurm: line of the batch script (module load X)."),
    click.option("--container", help="slurm, ssh: prefix of commands (apptainer exec image.sif)."),
    click.option("--shared-nodes", is_flag=True, help="slurm: do not ask for whole nodes."),
    click.option(
        "--copy-environment",
        is_flag=True,
        help="slurm: copy Python's packages to every node's own disk first.",
    ),
)

SSH = options(
    click.option(
        "--host-file",
        type=Path,
        help="ssh: a host per line, with its address in the "
        "cluster's own network where that differs.",
    ),
)

LAUNCHER = options(WHERE, EMULATED_HOSTS, SLURM_JOB, SSH)


def _refuse_strangers(given: dict[str, Any]) -> None:
    """See that no option was typed that only another launcher knows.

    Raises:
        UserError: one was.
    """
    launcher = given["launcher"]
    strangers = [name for name in JOB_OPTIONS if launcher != SLURM]
    strangers += [name for name in NETWORK_OPTIONS[1:] if launcher != EMULATED]
    typed = [name for name in strangers if given.get(name) not in (None, ())]
    if typed:
        option = "--time" if typed[0] == "time_limit" else f"--{typed[0].replace('_', '-')}"
        raise UserError(f"the launcher {launcher} has no use for {option}; leave it out.")


def settings_from(given: dict[str, Any]) -> LauncherSettings:
    """What the launcher is told."""
    _refuse_strangers(given)
    return LauncherSettings(
        data_dir=(given["results"] / "data").resolve(),
        allow_login_node=given["allow_login_node"],
        mixed_hosts=given["mixed_hosts"],
        network=network_from(given),
        host_file=given["host_file"],
        container=tuple(shlex.split(given["container"] or "")),
        shared_nodes=given["shared_nodes"],
        copy_environment=given["copy_environment"],
    )


def network_from(given: dict[str, Any]) -> EmulatedNetwork | None:
    """The network that the options describe; None if none of them was typed."""
    typed = [name for name in NETWORK_OPTIONS if given[name] is not None]
    if not typed or given["launcher"] == SLURM:
        return None
    if given["hosts"] is None:
        raise UserError(f"--{typed[0].replace('_', '-')} needs --hosts, the number of hosts.")
    return EmulatedNetwork(
        num_hosts=given["hosts"],
        bits_per_s=_rate(given["bandwidth"]),
        delay_s=parse_delay(given["delay"]) if given["delay"] else 0.0,
        slow_host=given["slow_host"],
        slow_bits_per_s=_rate(given["slow_bandwidth"]),
        racks=1 if given["racks"] is None else given["racks"],
        uplink_bits_per_s=_rate(given["uplink"]),
    )


def _rate(text: str | None) -> float | None:
    return None if text is None else parse_rate(text)
