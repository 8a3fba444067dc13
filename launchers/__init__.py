"""From an experiment to running tasks and back.

`LAUNCHERS` names every way of running; each is a site behind the same `HostsLauncher`.  Launchers
start the measured program as a program of its own and never import backends or TensorFlow.
"""

from __future__ import annotations

from collections.abc import Callable

from launchers.run.launcher import HostsLauncher
from launchers.settings import LauncherSettings
from launchers.sites.emulated.site import EmulatedSite
from launchers.sites.local import LocalSite
from launchers.sites.protocol import Site
from launchers.sites.slurm.site import SlurmSite
from launchers.sites.ssh.site import SshSite
from ps_allreduce.errors import UserError

LOCAL, EMULATED, SLURM, SSH = "local", "emulated", "slurm", "ssh"

#: Settings that belong to the launcher slurm.
OF_SLURM = ("container", "shared_nodes", "copy_environment")


def _local(settings: LauncherSettings) -> Site:
    settings.refuse_others(LOCAL, ())
    return LocalSite(allow_login_node=settings.allow_login_node)


def _emulated(settings: LauncherSettings) -> Site:
    settings.refuse_others(EMULATED, ("network",))
    if settings.network is None:
        raise UserError(
            "the launcher emulated needs --hosts, and --bandwidth for shaped links, for instance "
            "--hosts 4 --bandwidth 1gbit."
        )
    return EmulatedSite(settings.network, allow_login_node=settings.allow_login_node)


def _slurm(settings: LauncherSettings) -> Site:
    settings.refuse_others(SLURM, OF_SLURM)
    return SlurmSite(
        settings.container,
        shared_nodes=settings.shared_nodes,
        copy_environment=settings.copy_environment,
    )


def _ssh(settings: LauncherSettings) -> Site:
    settings.refuse_others(SSH, ("host_file", "container"))
    if settings.host_file is None:
        raise UserError(
            "the launcher ssh needs --host-file, a file with a host per line: "
            "[user@]name[:port] [private-address]."
        )
    return SshSite(settings.host_file, settings.container)


LAUNCHERS: dict[str, Callable[[LauncherSettings], Site]] = {
    LOCAL: _local,
    EMULATED: _emulated,
    SLURM: _slurm,
    SSH: _ssh,
}


def make_site(name: str, settings: LauncherSettings) -> Site:
    """The hosts that a launcher of that name runs on.

    Raises:
        UserError: there is none of that name, or a setting does not belong to it.
    """
    if name not in LAUNCHERS:
        raise UserError(f"unknown launcher {name!r}; choose one of {', '.join(LAUNCHERS)}.")
    return LAUNCHERS[name](settings)


def make_launcher(name: str, settings: LauncherSettings) -> HostsLauncher:
    """Look a launcher up by its name.

    Raises:
        UserError: there is none of that name, or a setting does not belong to it.
    """
    site = make_site(name, settings)
    return HostsLauncher(site, settings.data_dir, mixed_hosts=settings.mixed_hosts)
