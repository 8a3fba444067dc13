"""Whether every host can build the model that is to be trained.

Decides that all hosts build at once, from what they have; the files of a user's own model are sent
to those that do not see the ones here, as before a run.
"""

from __future__ import annotations

from pathlib import Path

from launchers.doctor.findings import Building
from launchers.fork_servers.asking import ask_hosts
from launchers.fork_servers.client import ForkServerClient
from launchers.fork_servers.host_servers import HostServers
from launchers.run.own_files import bring_copies
from ps_allreduce.errors import LaunchError
from ps_allreduce.fork_server.messages import DescribeModel, ModelDescribed
from ps_allreduce.inspection.model_facts import trainable_parameters
from ps_allreduce.point.models.trained import OwnModel
from ps_allreduce.point.workload import Workload

#: Models that people train are built in seconds; hosts of one machine share its cores.
BUILD_S = 300.0


def build_everywhere(
    servers: HostServers, workload: Workload, data_dir: Path, *, shares_files: bool
) -> Building:
    """Build a model on every host that still answers.

    Args:
        data_dir: the same folder here and there.
        shares_files: hosts see the files that are here.
    """
    refused = {} if shares_files else _bring(servers, workload, data_dir)

    def build(client: ForkServerClient) -> DescribeModel:
        log = client.job_log("describe")
        return DescribeModel(workload=workload, data_dir=str(data_dir), log=log)

    able = servers.only(host for host in servers.clients if host not in refused)
    answers = ask_hosts(able, build, BUILD_S)
    built = answers.of(ModelDescribed)
    return Building(
        model=workload.model.name,
        refused=refused | answers.troubles,
        built_s={host: each.build_ns / 1e9 for host, each in built.items()},
        parameters={host: trainable_parameters(each.variables) for host, each in built.items()},
    )


def _bring(servers: HostServers, workload: Workload, data_dir: Path) -> dict[str, str]:
    """Send the files of a user's own model; why some hosts did not take them."""
    if not isinstance(workload.model, OwnModel):
        return {}
    refused = {}
    for host, client in servers.reachable.clients.items():
        try:
            bring_copies(client, workload.model, data_dir)
        except LaunchError as error:
            refused[host] = str(error).splitlines()[0]
    return refused
