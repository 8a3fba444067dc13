"""What would run where: hosts, tasks, ports and every TF_CONFIG, without starting anything.

Decides how a plan looks as text.  Where tasks belong is decided by `layout`, as for a real run;
only the ports are nominal here, as a run takes those that are free.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import click

from launchers.sites.slurm.hostlist import parse_hostlist
from ps_allreduce.cluster import TaskId, TfConfig
from ps_allreduce.errors import UserError
from ps_allreduce.point.experiment import Collective, Experiment, Profile, server_settings
from ps_allreduce.point.layout import Placed, cluster_of, drivers_of, place_tasks
from ps_allreduce.point.placement import Policy
from ps_allreduce.point.spread import Coordinator, LayoutKind, Spread
from ps_allreduce.point.strategies import Strategy

FIRST_PORT = 2222


def nominal_addresses(placed: Placed, first_port: int) -> dict[TaskId, str]:
    """`host:port` of every task; the ports of a host are counted from the first one.

    Raises:
        UserError: the ports do not fit below 65 536.
    """
    used: dict[str, int] = {}
    addresses = {}
    for task, host in placed.items():
        port = first_port + used.setdefault(host, 0)
        if not 0 < port < 65536:
            raise UserError(f"port {port} of {task} on {host} is not one of 1 to 65535.")
        addresses[task] = f"{host}:{port}"
        used[host] += 1
    return addresses


def render_plan(experiment: Experiment, hosts: Sequence[str], first_port: int) -> str:
    """Hosts with their tasks, hosts that stay idle, and the TF_CONFIG of every task.

    Raises:
        UserError: the tasks do not fit on the hosts.
    """
    placed = place_tasks(experiment, hosts)
    addresses = nominal_addresses(placed, first_port)
    cluster = cluster_of(list(placed), addresses)
    drivers = ", ".join(str(task) for task in drivers_of(experiment))
    lines = [
        f"{len(placed)} tasks on {len(set(placed.values()))} of {len(hosts)} hosts, driven by "
        f"{drivers}; ports are nominal, a run takes free ones",
        "",
        *(_host_line(host, placed, addresses) for host in hosts),
        "",
        *(f"{task} TF_CONFIG={TfConfig(cluster, task).render()}" for task in placed),
    ]
    return "\n".join(lines)


def _host_line(host: str, placed: Placed, addresses: Mapping[TaskId, str]) -> str:
    here = [
        f"{task} (port {addresses[task].rpartition(':')[2]})"
        for task, where in placed.items()
        if where == host
    ]
    return f"{host}: {', '.join(here) or 'idle'}"


def experiment_of(given: Mapping[str, Any]) -> Experiment:
    """The least that a layout can be worked out from.

    Raises:
        UserError: the numbers do not fit together.
    """
    settings: dict[str, Any] = {"collective": Collective.RING}
    if given["num_ps"]:
        layout = LayoutKind(given["layout"])
        settings = server_settings(given["num_ps"], Policy.ROUND_ROBIN, layout)
    return Experiment(
        strategy=Strategy.PS_ASYNC if given["num_ps"] else Strategy.ALLREDUCE,
        num_workers=given["num_workers"],
        spread=Spread(
            workers_per_host=given["workers_per_host"],
            ps_per_host=given["ps_per_host"],
            coordinator=Coordinator(given["coordinator"]),
        ),
        profile=Profile(name="plan"),
        **settings,
    )


@click.command()
@click.option("--nodelist", help="As Slurm writes it, 'n[9-11]'; usually that of the present job.")
@click.option("--num-workers", type=int, default=1, show_default=True)
@click.option("--num-ps", type=int, default=0, show_default=True, help="0 is all-reduce.")
@click.option(
    "--layout",
    type=click.Choice([kind.value for kind in LayoutKind]),
    default=LayoutKind.COLOCATED.value,
    show_default=True,
)
@click.option("--workers-per-host", type=int, default=1, show_default=True)
@click.option("--ps-per-host", type=int, help="At most so many servers on a host.")
@click.option(
    "--coordinator",
    type=click.Choice([place.value for place in Coordinator]),
    default=Coordinator.FIRST_WORKER.value,
    show_default=True,
    help="Host of the chief.",
)
@click.option("--first-port", type=int, default=FIRST_PORT, show_default=True)
def plan(**given: Any) -> None:
    """Print hosts, tasks, ports and every TF_CONFIG; start nothing."""
    nodelist = given["nodelist"] or os.environ.get("SLURM_JOB_NODELIST", "")
    # As `scontrol show hostnames` prints them, one to a line, they can be pasted too.
    hosts = parse_hostlist(",".join(nodelist.split()))
    if not hosts:
        raise UserError("--nodelist names no host; paste one, for instance --nodelist 'n[9-11]'.")
    click.echo(render_plan(experiment_of(given), hosts, given["first_port"]))
