"""Which launcher a study gets where nobody states one.

Tasks that share a machine over loopback tell nothing about a network.  Decides that a study which
wants hosts gets emulated ones, unless this machine has many cores, forbids namespaces, or something
else speaks against it; what was decided is said in one sentence.
"""

from __future__ import annotations

from dataclasses import replace

from experiments import surroundings
from launchers.settings import AUTO, LauncherSettings
from launchers.sites import site_kind
from launchers.sites.emulated.site import EMULATED
from launchers.sites.local import LOCAL
from ps_allreduce.point.resources import Device

#: With fewer cores for each emulated host, a worker and a server share them on loopback as well.
CORES_PER_HOST = 2


def settle_launcher(
    settings: LauncherSettings, hosts: int | None, device: Device
) -> tuple[LauncherSettings, str]:
    """The settings with the launcher that `auto` stands for here, and what is to be said of it.

    Args:
        hosts: that the study wants; None if it does not care.

    Raises:
        UserError: something was stated that this launcher does not understand.
    """
    if settings.launcher != AUTO:
        return settings, ""
    sentence = ""
    settled = replace(settings, launcher=LOCAL.name)
    if hosts is not None and device is Device.CPU and not surroundings.inside_job():
        settled, sentence = _on_few_cores(settled, settings.hosts or hosts)
    site_kind(settled.launcher).refuse_others(settled)
    return settled, sentence


def _on_few_cores(settings: LauncherSettings, hosts: int) -> tuple[LauncherSettings, str]:
    cores = surroundings.num_cores()
    if cores >= CORES_PER_HOST * hosts:
        return settings, ""
    if refusal := surroundings.why_no_emulated_hosts(hosts):
        return settings, (
            "All tasks share this machine over loopback, which tells nothing about a network: "
            f"{refusal}"
        )
    return replace(settings, launcher=EMULATED.name, hosts=hosts), (
        f"On {hosts} emulated hosts, which share the {cores} cores of this machine, so that a "
        "network is compared; LAUNCHER=local (--launcher local) trains over loopback instead."
    )
