"""Which sites there are.  To add a launcher is to add its room and its line in `SITES`."""

from __future__ import annotations

from collections.abc import Mapping

from launchers.settings import LauncherSettings
from launchers.site import SiteKind
from launchers.sites.emulated.emulated_site import EMULATED
from launchers.sites.local import LOCAL
from launchers.sites.slurm.slurm_site import SLURM
from launchers.sites.ssh.ssh_site import SSH
from ps_allreduce.errors import UserError
from ps_allreduce.point.network import EmulatedNetwork

#: Every kind of site, by the name of its launcher, in the order of messages.
SITES: Mapping[str, SiteKind] = {kind.name: kind for kind in (LOCAL, EMULATED, SLURM, SSH)}


def site_kind(name: str) -> SiteKind:
    """Look a kind of site up by the name of its launcher.

    Raises:
        UserError: there is none of that name.
    """
    if name not in SITES:
        raise UserError(f"unknown launcher {name!r}; choose one of {', '.join(SITES)}.")
    return SITES[name]


def network_of(settings: LauncherSettings) -> EmulatedNetwork | None:
    """The network that is emulated; None where the launcher emulates none.

    Raises:
        UserError: something is missing, or makes no sense.
    """
    describe = site_kind(settings.launcher).network
    return None if describe is None else describe(settings)
