"""A first check of a cluster: `python -m experiments accept-cluster`.

Decides the order of its parts, what is said at the end, and the file that can be sent.  What each
part asks and finds is decided where it is done.
"""

from __future__ import annotations

import getpass
import ipaddress
from collections.abc import Callable, Mapping
from contextlib import redirect_stdout
from dataclasses import dataclass
from io import StringIO

from analysis.data.sending import SUFFIX, pack
from experiments.cli.requests import SpreadRequest, StudyRequest, SweepRequest
from experiments.cli.sweep_command import run_study
from experiments.models.workload_request import WorkloadRequest
from experiments.studies.catalogue import STUDIES
from experiments.suite.gate import GateRequest, run_gate
from experiments.sweep.folder import check_writable
from experiments.sweep.sweep import PROFILES, QUICK
from launchers.doctor.command import look_at_hosts
from launchers.settings import LauncherSettings
from launchers.sites.kinds import site_kind
from ps_allreduce.errors import UserError
from ps_allreduce.point.models.trained import SMALL_CNN
from ps_allreduce.point.workload import EmulatedCompute
from ps_allreduce.terminal import echo

NAME = "accept-cluster"

#: Gradients that fill links for a good part of a step, whatever processors there are.
BUSY_LINKS = "Tensors-16-25MB"
SOME_COMPUTE = EmulatedCompute(forward_s=0.02, backward_s=0.04)

#: Interrupted, or a mistake in the request: nothing that follows makes sense.
GIVES_UP = 2


CONCLUSION = """\
{target} holds all records, raw timings and what was printed, without names of hosts, addresses,
users and folders. Look into it; then send it to the project, please. It is known to work on few
clusters only. What it holds: make report RESULTS={target}"""


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptancePart:
    """One part of the check.

    Attributes:
        about: what it asks.
        run: does it, and returns its exit status.
        is_needed: where it fails, the others are left out.
    """

    about: str
    run: Callable[[], int]
    is_needed: bool = False


def accept_cluster(settings: LauncherSettings) -> int:
    """Go through all parts; return the exit status, 0 if none failed.

    Raises:
        UserError: there are not several hosts, or something stated would be told in the file.
    """
    check_settings(settings)
    folder = settings.results / NAME
    check_writable(folder)
    told: dict[str, str] = {}
    worst = 0
    for name, part in parts(settings).items():
        echo(f"{name}: {part.about}")
        status, text = _listened_to(part.run)
        told[f"{name}.txt"] = f"{name}: {part.about}\nstatus {status}\n{text}"
        if status >= GIVES_UP or (status and part.is_needed):
            echo(f"{name} ended with status {status}: the other parts are left out.", err=True)
            return status
        worst = max(worst, status)
    target = settings.results / f"{NAME}{SUFFIX}"
    pack(folder, target, told, [getpass.getuser()])
    echo(CONCLUSION.format(target=target))
    return worst


def check_settings(settings: LauncherSettings) -> None:
    """See that there is a cluster, and that the file would not tell its addresses.

    Raises:
        UserError: it is not so.
    """
    if not site_kind(settings.launcher).several_hosts:
        raise UserError(
            f"LAUNCHER={settings.launcher} has one host; a cluster has two or more: use slurm, "
            "ssh or emulated."
        )
    if settings.interface is not None and _is_subnet(settings.interface):
        raise UserError(
            f"--interface {settings.interface}: the file would tell this subnet; state the "
            "interface by its name."
        )


def _is_subnet(text: str) -> bool:
    try:
        ipaddress.ip_network(text, strict=False)
    except ValueError:
        return False
    return True


def parts(settings: LauncherSettings) -> Mapping[str, AcceptancePart]:
    """What is done, in this order."""
    small = WorkloadRequest(model=SMALL_CNN)
    communicating = WorkloadRequest(model=BUSY_LINKS, emulate=SOME_COMPUTE)
    gate = GateRequest(launcher=settings, spread=SpreadRequest(), workload=small)
    return {
        "doctor": AcceptancePart(
            about="what would go wrong on these hosts?",
            run=lambda: look_at_hosts(settings),
            is_needed=True,
        ),
        "gate": AcceptancePart(
            about="do all strategies train the same weights?", run=lambda: run_gate(gate)
        ),
        "compare": AcceptancePart(
            about="which side is faster with a small model?",
            run=lambda: _compare(settings, small),
        ),
        "bounds": AcceptancePart(
            about="how near does each strategy come to what the links allow?",
            run=lambda: _compare(settings, communicating),
        ),
    }


def _compare(settings: LauncherSettings, workload: WorkloadRequest) -> int:
    """All that a quick sweep measures, plain TensorFlow among it."""
    request = StudyRequest(
        name=f"{NAME}/{workload.model}",
        study=STUDIES["compare"],
        launcher=settings,
        sweep=SweepRequest(profile=PROFILES[QUICK]),
        workload=workload,
    )
    return run_study(request)


def _listened_to(run: Callable[[], int]) -> tuple[int, str]:
    """The exit status, and what was printed; it is on the screen as well."""
    heard = StringIO()
    with redirect_stdout(heard):
        status = run()
    echo(heard.getvalue().removesuffix("\n"))
    return status, heard.getvalue()
