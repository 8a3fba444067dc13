"""What commands take from the world around them: launchers, places to work, the source's state.

The one place where tests put something else.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import fmean

import psutil
from rich.console import Console

from experiments.sweep.link_rate import MOST_BITS_PER_S
from experiments.sweep.progress import SweepProgress, plain_console
from experiments.sweep.session import Workplace
from launchers import make_launcher
from launchers.processes import run_quietly
from launchers.run.launcher import HostsLauncher
from launchers.settings import LauncherSettings
from launchers.sites.emulated.emulated_site import EmulatedSite, Flows, measure_flows, network_of
from launchers.sites.kinds import SITES, site_kind
from ps_allreduce.errors import SuiteError
from ps_allreduce.kernel_files import usable_cores
from ps_allreduce.point.network import EmulatedNetwork
from ps_allreduce.record.provenance import ROOT, source_digest
from ps_allreduce.record.records import FOREIGN_LIMIT

PACKAGES = ("ps_allreduce", "launchers", "experiments")

#: How long others are watched, in seconds.
_WATCH_S = 1.0


#: The launcher that was asked for.
launcher_of = make_launcher


def this_machine(results: Path) -> HostsLauncher:
    """A launcher to ask about models and images, wherever runs are made."""
    return make_launcher(LauncherSettings(results=results, allow_login_node=True))


@contextmanager
def workplace(
    settings: LauncherSettings, sweep_dir: Path, console: Console | None = None
) -> Iterator[Workplace]:
    """The launcher that was asked for, while it is up, and the folder that its runs go into.

    Args:
        console: shows how the runs go on; None for standard error.

    Raises:
        UserError: something is missing or does not fit, or training is not welcome here.
    """
    launcher = launcher_of(settings)
    with launcher, SweepProgress(console or plain_console()) as progress:
        yield Workplace(
            launcher=launcher, sweep_dir=sweep_dir, commit=source_state(), listener=progress
        )


def num_cores() -> int:
    """Of this machine, as far as this process may use them."""
    return len(usable_cores())


def used_by_others() -> float:
    """Share of these processors that is in use while this process waits."""
    shares = psutil.cpu_percent(interval=_WATCH_S, percpu=True)
    cores = usable_cores()
    own = [share for core, share in enumerate(shares) if core in cores]
    return fmean(own or shares) / 100  # where a core is offline, numbers may be others


def tell_of_others(settings: LauncherSettings, console: Console) -> None:
    """Say before anything is measured here that other programs will take part in it."""
    share = used_by_others() if site_kind(settings.launcher).on_this_machine else 0.0
    if share > FOREIGN_LIMIT:
        console.print(
            f"Other programs use {share:.0%} of this machine's processors now. They slow runs down "
            "and may take the verdict away: end them, or wait."
        )


def inside_job() -> bool:
    """This process runs inside a job of a batch system."""
    schedulers = (kind.scheduler for kind in SITES.values())
    return any(each.inside_job() for each in schedulers if each is not None)


def why_no_emulated_hosts(num_hosts: int) -> str:
    """Why no emulated hosts can be had here, in a sentence; nothing if they can."""
    network = EmulatedNetwork(num_hosts=num_hosts, bits_per_s=MOST_BITS_PER_S)
    try:
        with EmulatedSite(network):
            return ""
    except SuiteError as error:
        return str(error)


def flows_of(settings: LauncherSettings) -> list[Flows]:
    """What plain TCP reaches on emulated hosts."""
    return list(measure_flows(EmulatedSite(network_of(settings))))


def source_state(root: Path = ROOT) -> str:
    """The state of the suite's source: the commit, or with changes a digest of its files as well.

    Without git, the digest alone.
    """
    sources = (path for name in PACKAGES for path in (root / name).rglob("*.py"))
    digest = source_digest(sources, root)
    head = run_quietly(["git", "-C", str(root), "rev-parse", "--short=12", "HEAD"], 10)
    if head is None or head.status != 0:
        return f"unknown, source {digest}"
    changed = run_quietly(["git", "-C", str(root), "status", "--porcelain", "--", *PACKAGES], 10)
    clean = changed is not None and changed.status == 0 and not changed.out.strip()
    return head.out.strip() if clean else f"{head.out.strip()} with changes, source {digest}"
