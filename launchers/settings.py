"""What can be stated about hosts, whichever launcher finds them.

Decides which settings there are, what help says of them, and which of them every launcher
understands.  Which of the others a launcher understands is decided in its room of `sites`; how they
are typed follows from their declarations (`launchers.cli.options`).
"""

from __future__ import annotations

import os
from dataclasses import dataclass, fields
from pathlib import Path

from ps_allreduce.declared import setting, typed
from ps_allreduce.point.network import CONGESTION, PORT_BUFFER_BYTES, Traffic

#: In the place of a launcher's name: whichever fits this machine.
AUTO = "auto"

#: What every launcher understands.
COMMON_SETTINGS = frozenset({"launcher", "results", "allow_login_node", "interface", "mixed_hosts"})


@dataclass(frozen=True, slots=True, kw_only=True)
class LauncherSettings:
    """How runs are launched; None, False or an empty tuple is what was not stated.

    Attributes:
        launcher: the name of a site's kind.
        interface: by name or subnet.
        bandwidth, slow_bandwidth, uplink: bits per second.
        delay: seconds.
        racks: joined by a link of the rate `uplink`.
        traffic: what links carry besides what tasks send.
        port_buffer: bytes.
        time_limit: of a job, minutes.
    """

    launcher: str = "local"
    results: Path = setting("Results folder.", Path("results"), usual=True)
    allow_login_node: bool = setting("Train on a cluster's login node.", False)
    interface: str | None = setting("Network whose addresses the tasks use.", unit="interface")
    mixed_hosts: bool = setting("Run on hosts of different kinds.", False)
    hosts: int | None = setting("number of hosts.", usual=True)
    ps_hosts: int | None = setting(
        "number of further hosts, maybe of another kind, for servers only.", usual=True
    )
    bandwidth: float | None = setting(
        "rate of every link and direction; sweeps choose one.", unit="rate", usual=True
    )
    delay: float | None = setting("delay from host to host, one way.", unit="delay")
    slow_host: int | None = setting("a host with a slower link, counted from 0.")
    slow_bandwidth: float | None = setting("rate of the slow host's link.", unit="rate")
    racks: int | None = setting("number of switches, 1 or 2.")
    uplink: float | None = setting("rate of the link between two racks.", unit="rate")
    traffic: tuple[Traffic, ...] = setting(
        "background traffic on every link (200mbit), or from host to host (0-1:200mbit); as often "
        "as needed.",
        (),
        unit="traffic",
    )
    congestion: str | None = setting(f"TCP's congestion control; {CONGESTION} if not given.")
    port_buffer: int | None = setting(
        f"buffer of every port of a switch; {PORT_BUFFER_BYTES // 10**6}MB if not given.",
        unit="size",
    )
    loss: float | None = setting(
        "share of packets that every port of a switch loses at random.", unit="share"
    )
    partition: str | None = setting("as sbatch takes it.", usual=True)
    account: str | None = setting("as sbatch takes it.", usual=True)
    time_limit: int | None = setting(
        "limit of the job; estimated if not given.", unit="minutes", usual=True
    )
    constraint: str | None = setting("as sbatch takes it.")
    gpus_per_node: str | None = setting("as sbatch takes it.")
    sbatch: tuple[str, ...] = setting(
        "any further option of sbatch, as often as needed.", (), usual=True
    )
    ps_sbatch: tuple[str, ...] = setting(
        "any option of sbatch for the hosts of --ps-hosts, for instance --ps-sbatch=--partition=x; "
        "as often as needed.",
        (),
    )
    setup: tuple[str, ...] = setting("line of the batch script, for instance module load X.", ())
    container: tuple[str, ...] = setting(
        "prefix of commands (apptainer exec x.sif).", (), unit="words"
    )
    shared_nodes: bool = setting("do not ask for whole nodes.", False)
    copy_environment: bool = setting(
        "copy Python's packages to every node's own disk first.", False
    )
    host_file: Path | None = setting(
        "a host per line, and its private address if hosts reach each other by another one.",
        usual=True,
    )

    @property
    def data_dir(self) -> Path:
        """Folder of the input files, absolute."""
        return Path(os.path.realpath(self.results / "data"))  # Path.resolve raises for a loop

    @property
    def stated(self) -> tuple[str, ...]:
        """The names of the settings that are not at their default."""
        return tuple(each.name for each in fields(self) if getattr(self, each.name) != each.default)


def option_of(name: str) -> str:
    """How a setting is typed."""
    return "--time" if name == "time_limit" else typed(name)
