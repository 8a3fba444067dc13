"""Command line of the experiments: `python -m experiments COMMAND --help`.

Exit status: 0 all is well, 1 some points failed, 2 the user's mistake, 130 interrupted.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from experiments.cli.dry_run import render_dry_run
from experiments.cli.given import experiment_from
from experiments.cli.one_line import one_line
from experiments.cli.options import DEALING, LAUNCHER, PROFILE, SERVERS, WIRE, WORKLOAD
from experiments.studies.catalogue import STUDIES
from experiments.suite.accept_gpu import NAME as ACCEPT_GPU
from experiments.suite.accept_gpu import SETTINGS as GPU_SETTINGS
from experiments.suite.accept_gpu import accept_gpu as go_through_gpus
from experiments.suite.bench import Where, run_bench
from experiments.suite.emulation_check import (
    check_emulation,
    render_agreements,
    save_agreements,
)
from experiments.sweep.command import run_sweep
from experiments.sweep.execute import Follower, open_session, run_once
from experiments.sweep.folder import locked
from experiments.sweep.progress import SweepProgress, counting_bar
from experiments.sweep.source_state import source_state
from experiments.sweep.sweep import PlannedRun
from launchers import EMULATED, make_launcher
from launchers.command_line import run_command_line
from launchers.options import network_from, settings_from
from launchers.run.launcher import HostsLauncher
from launchers.sites.local import LocalLauncher
from ps_allreduce.errors import UserError
from ps_allreduce.point.architectures import model_info
from ps_allreduce.point.experiment import Collective
from ps_allreduce.point.placement import Policy, usual_split_bytes
from ps_allreduce.point.strategies import Strategy
from ps_allreduce.point.workload import Workload
from ps_allreduce.record.records import Status

RUN_ONE = "run-one"


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def cli() -> None:
    """Measure distributed TensorFlow training."""


def _add_sweep(name: str) -> None:
    @cli.command(name, help=f"{(STUDIES[name].__doc__ or '').splitlines()[0]}")
    @PROFILE
    @LAUNCHER
    @WORKLOAD
    @SERVERS
    @WIRE
    @DEALING
    @click.option("--workers", help="Numbers of workers, for instance 1,2,4.")
    @click.option("--cores-per-worker", type=int)
    @click.option("--repetitions", type=int, help="Launches per point, instead of the profile's.")
    @click.option("--seed", type=int, default=1, show_default=True, help="Of the order of runs.")
    @click.option(
        "--jobs-by-size",
        is_flag=True,
        help="slurm: a job for each number of hosts, one after the other, instead of one for all.",
    )
    @click.option("--dry-run", is_flag=True, help="Say what would be run, and run nothing.")
    def sweep(**given: Any) -> None:
        sys.exit(run_sweep(name, given))


for _name in STUDIES:
    _add_sweep(_name)


def _launcher(given: dict[str, Any]) -> HostsLauncher:
    return make_launcher(given["launcher"], settings_from(given))


@cli.command(RUN_ONE)
@click.option("--strategy", required=True, help=f"One of {', '.join(Strategy)}.")
@click.option("--num-workers", type=int, default=1, show_default=True)
@click.option(
    "--placement",
    default=Policy.ROUND_ROBIN.value,
    show_default=True,
    help=f"One of {', '.join(Policy)}.",
)
@click.option(
    "--collective", help=f"Of all-reduce: {', '.join(Collective)}; usually {Collective.RING}."
)
@click.option("--bytes-per-pack", type=int, help="TensorFlow's packs, not buckets; 0: one pack.")
@click.option("--cores-per-worker", type=int, default=1, show_default=True)
@click.option("--threads-per-worker", type=int, default=1, show_default=True)
@click.option("--weights", type=Path, help="Save the final weights to this file (.npz).")
@PROFILE
@LAUNCHER
@WORKLOAD
@SERVERS
@WIRE
@DEALING
def run_one(**given: Any) -> None:
    """Run one experiment once more; print one JSON line."""
    sweep_dir = given["results"] / RUN_ONE
    with _launcher(given) as launcher, SweepProgress(Console(stderr=True)) as follower:
        follower.begin(1, 0)
        experiment = experiment_from(given, launcher.describe)
        launcher.check(experiment)
        with locked(sweep_dir):
            session = open_session(launcher, RUN_ONE, sweep_dir, source_state(), follower)
            launcher.prepare(experiment.workload)
            repetition = session.history.next_repetition(experiment.experiment_id)
            run = PlannedRun(experiment=experiment, repetition=repetition)
            record = run_once(session, run, given["weights"] and given["weights"].resolve())
    click.echo(json.dumps(one_line(record, sweep_dir)))
    sys.exit({Status.OK: 0, Status.INTERRUPTED: 130}.get(record.status, 1))


@cli.command("placement")
@click.option("--model", default="ResNet50", show_default=True)
@click.option("--num-ps", type=int, default=2, show_default=True)
@click.option("--image-size", type=int, help="Default: what the model was designed for.")
@click.option("--num-classes", type=int, default=1000, show_default=True)
@click.option("--split-bytes", type=int, help="Usually 4 MB, less for small models.")
def placement(
    model: str, num_ps: int, image_size: int | None, num_classes: int, split_bytes: int | None
) -> None:
    """Show where variables would go under every policy; trains nothing."""
    size = model_info(model).usual_image_size if image_size is None else image_size
    workload = Workload(model=model, image_size=size, num_classes=num_classes)
    with (
        tempfile.TemporaryDirectory() as folder,
        LocalLauncher(Path(folder), allow_login_node=True) as launcher,
    ):
        variables = launcher.describe(workload)
    if split_bytes is None:
        split_bytes = usual_split_bytes(variables, num_ps)
    click.echo(render_dry_run(model, variables, num_ps, split_bytes))


@cli.command("convert-images")
@click.argument("source", type=Path)
@click.argument("target", type=Path)
def convert_images(source: Path, target: Path) -> None:
    """Write the images below SOURCE/<class>/ as TFRecord files into TARGET."""
    with (
        LocalLauncher(target, allow_login_node=True) as launcher,
        counting_bar(Console(stderr=True), "images") as progress,
    ):
        counts = launcher.convert(source.resolve(), target.resolve(), progress)
    for name, count in counts.items():
        click.echo(f"{name}: {count} images")


@cli.command("emulation-check")
@LAUNCHER
@click.option("--repetitions", type=int, default=3, show_default=True, help="Launches per point.")
def emulation_check(**given: Any) -> None:
    """Find the link rate up to which emulated hosts can be trusted on this machine."""
    network = network_from(given | {"launcher": EMULATED})
    if network is None:
        raise UserError("state the network, for instance --hosts 4 --bandwidth 1gbit.")
    with SweepProgress(Console(stderr=True)) as progress:
        agreements = check_emulation(
            network,
            given["results"],
            source_state(),
            progress,
            repetitions=given["repetitions"],
            allow_login_node=given["allow_login_node"],
        )
    click.echo(render_agreements(agreements))
    click.echo(save_agreements(agreements, given["results"]))


@cli.command(ACCEPT_GPU)
@LAUNCHER
def accept_gpu(**given: Any) -> None:
    """Go through the checklist for a first use on GPUs."""
    os.environ.update(GPU_SETTINGS)
    with _launcher(given) as launcher:
        sys.exit(go_through_gpus(launcher, given, source_state(), Follower(), click.echo))


@cli.command("bench")
@LAUNCHER
def bench(**given: Any) -> None:
    """Measure what the suite itself costs; write bench/bench.json."""
    with _launcher(given) as launcher:
        where = Where(results=given["results"], commit=source_state(), console=Console(stderr=True))
        try:
            click.echo(run_bench(launcher, given["launcher"], network_from(given), where))
        except KeyboardInterrupt:
            click.echo(f"Interrupted; parts that were over are in {where.path}.", err=True)
            sys.exit(130)


def main(words: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit status."""
    interrupted = "Interrupted. A sweep goes on with the same command, anything else begins again."
    return run_command_line(cli, words, "python -m experiments", interrupted)


if __name__ == "__main__":
    sys.exit(main())
