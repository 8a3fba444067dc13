"""What launchers can be told, whichever of them it is.

Decides that a setting which does not belong to the chosen launcher is refused, not ignored.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from ps_allreduce.errors import UserError
from ps_allreduce.point.network import EmulatedNetwork

#: Settings that only some launchers know, and how each is typed.
OPTION_OF = {
    "network": "--hosts and what shapes links",
    "host_file": "--host-file",
    "container": "--container",
    "shared_nodes": "--shared-nodes",
    "copy_environment": "--copy-environment",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class LauncherSettings:
    """How runs are launched.

    Attributes:
        data_dir: folder of the input files.
        mixed_hosts: hosts of different kinds may take part in one run.
        network: of the launcher `emulated`.
        host_file: of the launcher `ssh`.
        container: words that are put before the measured program, for `slurm` and `ssh`.
        shared_nodes: others may run on the nodes of the job.
        copy_environment: Python's packages are copied to every node's own disk first.
    """

    data_dir: Path
    allow_login_node: bool = False
    mixed_hosts: bool = False
    network: EmulatedNetwork | None = None
    host_file: Path | None = None
    container: tuple[str, ...] = ()
    shared_nodes: bool = False
    copy_environment: bool = False

    def refuse_others(self, launcher: str, own: Collection[str]) -> None:
        """See that nothing was asked for that the launcher does not know.

        Raises:
            UserError: something was.
        """
        for name, option in OPTION_OF.items():
            if name not in own and getattr(self, name):
                raise UserError(f"the launcher {launcher} has no use for {option}; leave it out.")
