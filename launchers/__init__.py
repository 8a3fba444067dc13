"""From an experiment to running tasks and back.

`launchers.sites` holds every kind of site; each is a launcher behind the same `HostsLauncher`.
Launchers start the measured program as a program of its own and never import backends or
TensorFlow.  Here nothing is imported before it is needed (`ps_allreduce.process`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from launchers.run.launcher import HostsLauncher
    from launchers.settings import LauncherSettings
    from launchers.site import Site


def make_site(settings: LauncherSettings) -> Site:
    """The hosts that the settings describe.

    Raises:
        UserError: something is missing or does not fit, or training is not welcome here.
    """
    from launchers.sites.kinds import SITES, site_kind

    kind = site_kind(settings.launcher)
    site = kind.make(settings)
    if kind.on_this_machine and not settings.allow_login_node:
        for each in SITES.values():
            if each.scheduler is not None:
                each.scheduler.refuse_login_node()
    return site


def make_launcher(settings: LauncherSettings) -> HostsLauncher:
    """The launcher that the settings describe.

    Raises:
        UserError: something is missing or does not fit, or training is not welcome here.
    """
    from launchers.run.launcher import HostsLauncher

    return HostsLauncher(make_site(settings), settings.data_dir, mixed_hosts=settings.mixed_hosts)
