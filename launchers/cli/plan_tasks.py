"""The command `plan`: which task would run where, and every TF_CONFIG; nothing is started.

Decides how this looks as text.  Where tasks belong is decided by `layout`, as for a real run; only
the ports are nominal here, as a run takes those that are free.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import click

from launchers.cli.options import option_group
from launchers.cli.types import WHOLE, one_of
from launchers.sites.kinds import SITES
from ps_allreduce.cluster import TaskId, TfConfig
from ps_allreduce.errors import UserError
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.layout import Placed, cluster_of, drivers_of, place_tasks
from ps_allreduce.point.resources import Coordinator, LayoutKind, Spread
from ps_allreduce.point.strategies import AllReduce, AsynchronousServers
from ps_allreduce.point.strategies.base import Servers
from ps_allreduce.terminal import echo

FIRST_PORT = 2222


def nominal_addresses(placed: Placed, first_port: int) -> dict[TaskId, str]:
    """`host:port` of every task; the ports of a host are counted from the first one.

    Raises:
        UserError: the ports do not fit below 65 536.
    """
    next_port = dict.fromkeys(placed.values(), first_port)
    addresses = {}
    for task, host in placed.items():
        port = next_port[host]
        if not 0 < port < 65536:
            raise UserError(f"port {port} of {task} on {host} is not one of 1 to 65535.")
        addresses[task] = f"{host}:{port}"
        next_port[host] += 1
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


def hosts_of(nodelist: str) -> tuple[str, ...]:
    """The hosts of a list as a scheduler writes it; of an empty one, those of the present job.

    Raises:
        UserError: the list cannot be read, or names no host.
    """
    schedulers = [kind.scheduler for kind in SITES.values() if kind.scheduler is not None]
    hosts = next(filter(None, (each.hosts_of(nodelist) for each in schedulers)), ())
    if not hosts:
        raise UserError("--nodelist names no host; paste one, for instance --nodelist 'n[9-11]'.")
    return hosts


@click.command()
@click.option(
    "--nodelist", default="", help="As Slurm writes it, 'n[9-11]'; default: that of this job."
)
@click.option("--num-workers", type=WHOLE, default=1, show_default=True)
@click.option("--num-ps", type=WHOLE, default=0, show_default=True, help="0 is all-reduce.")
@click.option(
    "--layout", type=one_of(LayoutKind), default=LayoutKind.COLOCATED.value, show_default=True
)
@option_group(
    "spread",
    Spread,
    click.option("--workers-per-host", type=WHOLE, default=1, show_default=True),
    click.option("--ps-per-host", type=WHOLE, help="Most servers on a host."),
    click.option(
        "--coordinator",
        type=one_of(Coordinator),
        default=Coordinator.FIRST_WORKER.value,
        show_default=True,
        help="Host of the chief.",
    ),
)
@click.option("--first-port", type=WHOLE, default=FIRST_PORT, show_default=True)
def plan(
    nodelist: str,
    num_workers: int,
    num_ps: int,
    layout: LayoutKind,
    spread: Spread,
    first_port: int,
) -> None:
    """Print hosts, tasks, ports and every TF_CONFIG; start nothing."""
    strategy: AllReduce | AsynchronousServers = AllReduce()
    if num_ps:
        strategy = AsynchronousServers(servers=Servers(num_ps=num_ps, layout=layout))
    experiment = Experiment(strategy=strategy, num_workers=num_workers, spread=spread)
    echo(render_plan(experiment, hosts_of(nodelist), first_port))
