"""Which launcher a study gets where nobody states one.

Tasks that share a machine over loopback tell nothing about a network.  Decides that a study which
wants hosts gets emulated ones, unless this machine forbids namespaces or something else speaks
against it, and twice as many where there are cores for them; what was decided is said in one
sentence.
"""

from __future__ import annotations

from dataclasses import replace

from experiments import surroundings
from launchers.settings import AUTO, LauncherSettings
from launchers.sites.emulated.site import EMULATED
from launchers.sites.kinds import site_kind
from launchers.sites.local import LOCAL
from ps_allreduce.point.resources import Device

#: With so many cores for each emulated host there are enough for twice as many hosts.
CORES_FOR_TWO = 4


def settle_launcher(
    settings: LauncherSettings, hosts: int | None, device: Device
) -> tuple[LauncherSettings, str]:
    """The settings with the launcher that `auto` stands for here, and what is to be said of it.

    Args:
        hosts: that the study wants at least; None if it does not care.

    Raises:
        UserError: something was stated that this launcher does not understand.
    """
    if settings.launcher != AUTO:
        return settings, ""
    sentence = ""
    settled = replace(settings, launcher=LOCAL.name)
    if hosts is not None and device is Device.CPU and not surroundings.inside_job():
        settled, sentence = _on_emulated_hosts(settled, hosts)
    site_kind(settled.launcher).refuse_others(settled)
    return settled, sentence


def _on_emulated_hosts(settings: LauncherSettings, wanted: int) -> tuple[LauncherSettings, str]:
    cores = surroundings.num_cores()
    hosts = settings.hosts or wanted * (2 if cores >= CORES_FOR_TWO * wanted else 1)
    if refusal := surroundings.why_no_emulated_hosts(hosts):
        return settings, (
            "All tasks share this machine over loopback, which tells nothing about a network: "
            f"{refusal}"
        )
    return replace(settings, launcher=EMULATED.name, hosts=hosts), (
        f"On {hosts} emulated hosts, which share the {cores} cores of this machine, so that a "
        "network is compared; LAUNCHER=local (--launcher local) trains over loopback instead."
    )
