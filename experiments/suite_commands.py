"""The commands with which the suite is checked: what it costs, and whether it tells the truth.

Decides their options.  What each of them does is decided in `experiments.suite`, which is imported
when a command is called: the analysis takes a second.
"""

from __future__ import annotations

import sys
from pathlib import Path

import click

from experiments.cli.experiment_options import SPREAD, WORKLOAD
from experiments.cli.requests import SpreadRequest
from experiments.models.workload_request import WorkloadRequest
from launchers.cli.options import LAUNCHER, BriefCommand
from launchers.cli.types import NUMBER, PATH, WHOLE
from launchers.settings import LauncherSettings
from launchers.sites.kinds import SITES

#: The launcher that `emulation-check` is about.
EMULATING = next(kind for kind in SITES.values() if kind.network is not None)


@click.command("bench", cls=BriefCommand)
@LAUNCHER
def bench(launcher: LauncherSettings) -> None:
    """Measure what the suite itself costs; write bench/bench.json.

    After an interruption, the same command makes the runs that are missing.
    """
    from experiments.suite.bench import run_bench

    sys.exit(run_bench(launcher))


@click.command(
    "emulation-check",
    cls=BriefCommand,
    context_settings={"default_map": {"launcher": EMULATING.name}},
)
@LAUNCHER
@click.option("--repetitions", type=WHOLE, default=3, show_default=True, help="Launches per point.")
def emulation_check(launcher: LauncherSettings, repetitions: int) -> None:
    """Find the link rate up to which emulated hosts can be trusted on this machine."""
    from experiments.suite.emulation_check import check_emulation

    sys.exit(check_emulation(launcher, repetitions))


@click.command("planted-causes", cls=BriefCommand)
@click.option("--seed", type=WHOLE, default=1, show_default=True, help="Seed of the causes.")
@click.option("--launches", type=WHOLE, default=60, show_default=True, help="Launches with causes.")
@click.option(
    "--budget-s", type=NUMBER, default=3600.0, show_default=True, help="No turn begins after it."
)
@click.option(
    "--results", type=PATH, default=Path("results"), show_default=True, help="Folder of records."
)
def planted_causes(seed: int, launches: int, budget_s: float, results: Path) -> None:
    """Plant causes in launches on emulated hosts, and see whether the explanation finds them.

    The same command goes on where it stopped.
    """
    from experiments.suite.planted_causes import plant_causes

    sys.exit(plant_causes(results, seed, launches, budget_s))


@click.command("accept-cluster", cls=BriefCommand)
@LAUNCHER
def accept_cluster(launcher: LauncherSettings) -> None:
    """Check two hosts or more in half an hour; leave one file to send, without names.

    Doctor, gate, and two brief comparisons with plain TensorFlow and the bounds of the links.
    After an interruption, the same command makes the runs that are missing.
    """
    from experiments.suite import accept_cluster as checklist

    sys.exit(checklist.accept_cluster(launcher))


@click.command("accept-gpu", cls=BriefCommand)
@LAUNCHER
def accept_gpu(launcher: LauncherSettings) -> None:
    """Go through the checklist for a first use on GPUs."""
    from experiments.suite.accept_gpu import accept_gpu as go_through

    sys.exit(go_through(launcher))


@click.command("gate", cls=BriefCommand)
@click.option("--num-workers", type=WHOLE, default=2, show_default=True, help="Workers.")
@click.option("--num-ps", type=WHOLE, default=2, show_default=True, help="Parameter servers.")
@LAUNCHER
@SPREAD
@WORKLOAD
def gate(
    num_workers: int,
    num_ps: int,
    launcher: LauncherSettings,
    spread: SpreadRequest,
    workload: WorkloadRequest,
) -> None:
    """Show that all strategies train the same weights of a model.

    Ten steps with every synchronous strategy and placement, and with asynchronous servers and one
    worker, are compared with a single worker's that takes the same batches.  Exit status: 0 all
    agree, 1 some do not, 2 a mistake in the request.
    """
    from experiments.suite.gate import GateRequest, run_gate

    request = GateRequest(
        num_workers=num_workers,
        num_ps=num_ps,
        launcher=launcher,
        spread=spread,
        workload=workload,
    )
    sys.exit(run_gate(request))


SUITE_COMMANDS = (
    bench,
    emulation_check,
    planted_causes,
    accept_cluster,
    accept_gpu,
    gate,
)
