"""Command line of the experiments: `python -m experiments COMMAND --help`.

Exit status: 0 all is well, 1 some points failed, 2 the user's mistake, 130 interrupted.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from ps_allreduce.process import end_at_once, end_in_order, end_with

if __name__ == "__main__":
    end_at_once()

import click

from experiments import surroundings
from experiments.cli import run_one as single
from experiments.cli.experiment_options import (
    CORES_PER_WORKER,
    RUN,
    SPREAD,
    SPREADS,
    SWEEP_SETTINGS,
    WORKLOAD,
    sweep_options,
)
from experiments.cli.model_commands import doctor, placement
from experiments.cli.requests import RunRequest, SpreadRequest, StudyRequest, SweepRequest
from experiments.cli.search import searched_first
from experiments.cli.settle import settled
from experiments.cli.sweep_command import run_study
from experiments.data_sets.layouts import LAYOUTS
from experiments.data_sets.listing import Layout
from experiments.models.model_text import render_models
from experiments.models.settle_model import settle_model
from experiments.models.workload_request import WorkloadRequest
from experiments.studies.catalogue import STUDIES, render_studies
from experiments.studies.study import Study
from experiments.suite_commands import SUITE_COMMANDS
from experiments.sweep.progress import counting_bar, plain_console
from experiments.sweep.sweep import STANDARD
from experiments.tuning import candidates
from launchers.cli.options import LAUNCHER_OR_AUTO, BriefCommands
from launchers.cli.run import run_command_line
from launchers.cli.types import NUMBER, PATH, WHOLE, OneOf, named
from launchers.settings import LauncherSettings
from ps_allreduce.errors import UserError, at_least, at_most
from ps_allreduce.point.experiment import MOST_WORKERS
from ps_allreduce.point.network import parse_rate
from ps_allreduce.point.strategies.stated import StrategySettings
from ps_allreduce.record.choices import TUNE
from ps_allreduce.record.records import Status
from ps_allreduce.terminal import echo


@click.group(cls=BriefCommands, context_settings={"help_option_names": ["-h", "--help"]})
def cli() -> None:
    """Measure distributed TensorFlow training."""


def add_study(name: str, study: Study) -> None:
    """Make a study a command."""

    @cli.command(name, help=study.about)
    @sweep_options(study.profiles)
    @LAUNCHER_OR_AUTO
    @SPREADS
    @WORKLOAD
    @SWEEP_SETTINGS
    def command(
        sweep: SweepRequest,
        launcher: LauncherSettings,
        spread: SpreadRequest,
        workload: WorkloadRequest,
        settings: StrategySettings,
    ) -> None:
        request = StudyRequest(
            name=name,
            study=study,
            launcher=launcher,
            sweep=sweep,
            workload=workload,
            spread=spread,
            settings=settings,
        )
        request = settled(request)
        if study.calibration is not None:
            from experiments.tuning.foreseen import (
                run_foreseen,
            )  # the analysis takes long to import

            sys.exit(run_foreseen(request))
        sys.exit(run_study(_searched(request)))


def _searched(request: StudyRequest) -> StudyRequest:
    """The request with the best settings of what is launched before its sweep, if it has that."""
    if request.study.tunes and request.sweep.profile.name == STANDARD:
        from experiments.tuning import tune as tuning

        return tuning.tuned_first(request)
    return searched_first(request)


for _name, _study in STUDIES.items():
    add_study(_name, _study)


@cli.command(single.NAME)
@RUN
def run_one(run: RunRequest) -> None:
    """Make one run of one experiment; print its result as one line of JSON.

    Every call makes a new run, and adds it to those in the results folder.
    """
    single.check_places(run)
    run = replace(run, workload=settle_model(run.workload, run.launcher.results, plain_console()))
    with surroundings.workplace(run.launcher, run.launcher.results / single.NAME) as place:
        place.listener.begin(1, 0)
        experiment = single.single_experiment(run, place.launcher.describe)
        record = single.make_one_run(experiment, run, place)
    echo(json.dumps(single.one_line(record, place.sweep_dir)))
    sys.exit({Status.OK: 0, Status.INTERRUPTED: 130}.get(record.status, 1))


for _command in (placement, doctor, *SUITE_COMMANDS):
    cli.add_command(_command)


@cli.command("list")
def list_studies() -> None:
    """List all studies: hosts, cost, and what each should show."""
    echo(render_studies(STUDIES))


@cli.command("models")
def models() -> None:
    """List the names of all models that --model takes."""
    echo(render_models())


@cli.command("convert")
@click.argument("layout", type=OneOf(LAYOUTS))
@click.argument("source", type=PATH, metavar="SOURCE")
@click.argument("out", type=PATH, metavar="OUT")
def convert(layout: Layout, source: Path, out: Path) -> None:
    """Write a public data set in the folder SOURCE as TFRecord files into OUT.

    One folder for each split, which --input takes.  The same command goes on where it stopped; once
    all is there, it verifies the files.
    """
    from experiments.data_sets.convert import convert as write
    from experiments.data_sets.convert import told

    made = write(layout, source, out, partial(counting_bar, plain_console()))
    echo("\n".join(told(made, out)))


@cli.command("advise")
@click.argument("folder", type=PATH, metavar="FOLDER")
@click.option("--hosts", type=WHOLE, help="Number of hosts to advise for; needed.")
@click.option(
    "--bandwidth",
    type=parse_rate,
    metavar="<rate>",
    help="Rate of links.  [default: as measured]",
)
@click.option("--model", help="As it was measured; needed where several models were.")
@click.option("--host-price", type=float, help="Price of a host for an hour, in any currency.")
@click.option(
    "--ps-host-price",
    type=float,
    help="Price of a host named for servers.  [default: the host price]",
)
def advise(
    folder: Path,
    hosts: int | None,
    bandwidth: float | None,
    model: str | None,
    host_price: float | None,
    ps_host_price: float | None,
) -> None:
    """Say which measured setting would be best on more hosts, and how to measure it.

    It predicts from the launches below FOLDER, and launches nothing.  Without a cluster FOLDER may
    be piz-daint or p2.xlarge (published rates), or emulated (launches that the suite ships).
    """
    if hosts is None:
        raise UserError("say for how many hosts: --hosts 16, or make advise HOSTS=16.")
    at_least(1, hosts=hosts)
    at_most(MOST_WORKERS, hosts=hosts)
    from experiments.tuning.advise import told_advice

    told = told_advice(folder, hosts, bandwidth, model, (host_price, ps_host_price))
    echo("\n".join(told))


@cli.command(TUNE)
@click.option(
    "--minutes", type=NUMBER, default=10.0, show_default=True, help="Time of all launches."
)
@click.option(
    "--workers", type=WHOLE, help="Workers of all-reduce.  [default: as many as hosts hold]"
)
@CORES_PER_WORKER
@LAUNCHER_OR_AUTO
@SPREAD
@WORKLOAD
def tune(
    minutes: float,
    workers: int | None,
    cores_per_worker: int | None,
    launcher: LauncherSettings,
    spread: SpreadRequest,
    workload: WorkloadRequest,
) -> None:
    """Find the best setting of synchronous servers and of all-reduce for a model on these hosts.

    Both sides get equally many node minutes on equally many hosts, and use them by successive
    halving.  The same command goes on where it stopped.
    """
    from experiments.tuning.tune import PROFILE, run_tuning

    request = StudyRequest(
        name=TUNE,
        study=candidates.STUDY,
        launcher=launcher,
        sweep=SweepRequest(
            profile=PROFILE,
            workers=None if workers is None else (workers,),
            cores_per_worker=cores_per_worker,
        ),
        workload=workload,
        spread=spread,
    )
    sys.exit(run_tuning(request, minutes))


@cli.command("export")
@click.option(
    "--setting",
    default="best",
    show_default=True,
    help="Beginning of an experiment_id, or best: the leading synchronous setting.",
)
@click.option("--model", help="As it was measured; needed where several models were.")
@click.option(
    "--results", type=PATH, default=Path("results"), show_default=True, help="Folder of records."
)
@click.option("--into", type=PATH, required=True, help="A folder that is not there yet.")
@click.option(
    "--launcher",
    type=named(("local", "ssh", "slurm")),
    help="How the training is started.  [default: as it was measured]",
)
def export(
    setting: str, model: str | None, results: Path, into: Path, launcher: str | None
) -> None:
    """Write a measured setting as a training of your own."""
    from experiments.export.exported import Start
    from experiments.export.training_folder import (
        export as write,  # the analysis takes a second to import
    )

    echo(write(results, setting, model, None if launcher is None else Start(launcher), into))


def main(words: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit status."""
    interrupted = (
        "Interrupted. What is recorded is kept. The same command makes only the runs of a sweep or "
        "files of a conversion that are missing; a first look and a gate begin anew."
    )
    return run_command_line(cli, words, "python -m experiments", interrupted)


if __name__ == "__main__":
    end_in_order()
    end_with(main())
