"""`python -m analysis`: reports and summaries of the sweeps below a folder.

Exit status: 0 all is well, 1 some points failed or some records cannot be read, 2 the user's
mistake or nothing to report on, 130 interrupted.
"""

from __future__ import annotations

import gc
import io
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from ps_allreduce.process import INTERRUPTED, MISTAKE, end_at_once, end_in_order, end_with

if __name__ == "__main__":
    end_at_once()
    # Modules are no garbage, and a report is over before it has made much.
    gc.disable()

import click
from rich.console import Console

from analysis.data.blocks import SweepResults, analysed
from analysis.data.case_names import file_names
from analysis.data.cases import Case, Point, cases_of
from analysis.data.columns import write_summary
from analysis.data.load import find_sweeps, read_sweep
from analysis.data.prices import Prices, stated_prices
from analysis.data.sending import SUFFIX, unpack
from analysis.figures.save import save_figures
from analysis.predict.predict_commands import (
    FOLDER,
    check_command,
    literature_command,
    predict_command,
    results_folder,
)
from analysis.report.pages.ahead_page import ahead_page
from analysis.report.pages.page_parts import CaseReport
from analysis.report.pages.pages import study_page, write_report
from analysis.report.screen import show, show_two
from analysis.report.table import SCREEN_WIDTH
from analysis.report.verdict import verdict
from analysis.stats.two_results import shared_cases
from analysis.timeline.trace_events import save_traces
from analysis.wording import count_text
from ps_allreduce.errors import SuiteError, UserError
from ps_allreduce.process import end_as_interrupted
from ps_allreduce.record.choices import BEFOREHAND
from ps_allreduce.record.records import Status
from ps_allreduce.terminal import Terminal, echo

OK, SOME_FAILED = 0, 1

#: New objects after which garbage is looked for; Python's own 700 cost a tenth of a report's time.
_GARBAGE = 50_000

_NO_RESULT = (
    "launches of a first look, a gate, a tuning or a benchmark: their rates are no results."
)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def cli() -> None:
    """Tables, figures and reports from the records of sweeps.

    Exit status: 0 all well, 1 some points failed or some records cannot be read, 2 nothing to
    report on, 130 interrupted.
    """


@cli.command()
@FOLDER
@click.option("--host-price", type=float, help="Price of a host for an hour, in any currency.")
@click.option(
    "--ps-host-price",
    type=float,
    help="Price of a host named for servers.  [default: the host price]",
)
def report(folder: Path, host_price: float | None, ps_host_price: float | None) -> None:
    """Write summary.csv, figures and report.html into every sweep in FOLDER.

    A file that accept-cluster has left is unpacked beside itself first.
    """
    prices = stated_prices(host_price, ps_host_price)
    folder = unpack(folder) if folder.suffix == SUFFIX else folder
    sys.exit(_for_each_sweep(folder, report_sweep, prices, of_all=False))


@cli.command()
@FOLDER
def summary(folder: Path) -> None:
    """Write summary.csv into every sweep in FOLDER."""
    sys.exit(_for_each_sweep(folder, summarise_sweep))


@cli.command("compare-results")
@click.argument("a", type=results_folder)
@click.argument("b", type=results_folder)
def compare_results(a: Path, b: Path) -> None:
    """Compare the sweeps in two folders: two clusters, or two versions."""
    first, second = (analysed(read_sweep(_only_sweep(folder))) for folder in (a, b))
    for results in (first, second):
        if results.is_no_result:
            raise UserError(f"{results.files.folder}: {_NO_RESULT} Name a sweep that measured.")
    if first.files.folder.resolve() == second.files.folder.resolve():
        raise UserError(f"A and B are the same folder, {first.files.folder}.")
    if shared_launches := _launches_of(first) & _launches_of(second):
        raise UserError(
            f"A and B share {len(shared_launches)} launches: one is a copy of the other, or of a "
            "part of it. Compare launches that were made apart."
        )
    shared = shared_cases(cases_of(first), cases_of(second))
    show_two(_console(), (first, second), shared)


def _launches_of(results: SweepResults) -> set[tuple[str, str, str]]:
    """What no two launches have in common: the machine, the run and when it began."""
    block = results.block
    return {(block.fingerprint, record.run_id, record.started_at) for record in block.records}


def _only_sweep(folder: Path) -> Path:
    found = find_sweeps(folder)
    # What was launched beforehand chose something, and is no result.
    sweeps = [sweep for sweep in found if sweep.name not in BEFOREHAND] or found
    if len(sweeps) > 1:
        listed = ", ".join(str(sweep) for sweep in sweeps)
        raise UserError(f"{folder} holds several sweeps, name one of them: {listed}.")
    return sweeps[0]


cli.add_command(predict_command)
cli.add_command(check_command)
cli.add_command(literature_command)


def _for_each_sweep(
    folder: Path,
    action: Callable[[SweepResults, Sequence[Case]], None],
    prices: Prices | None = None,
    *,
    of_all: bool = True,
) -> int:
    """Do it for all sweeps; one that cannot be read does not keep the others from it.

    Args:
        of_all: also for sweeps whose rates are no results.
    """
    status = OK
    for path in find_sweeps(folder):
        try:
            results = analysed(read_sweep(path))
        except UserError as error:
            echo(f"Error: {error}", err=True)
            status = MISTAKE
            continue
        if results.is_no_result and not of_all:
            echo(f"{path}: {_NO_RESULT}")
            continue
        files, cases = results.files, cases_of(results, prices)
        for item in files.damaged:
            echo(f"Not read: {files.folder / item.path}: {item.reason}", err=True)
        action(results, cases)
        lost = [point for case in cases for point in case.points if point.lost_repetitions]
        if lost:
            echo(_lost_text(lost))
        if lost or files.damaged:
            status = max(status, SOME_FAILED)
    return status


def _lost_text(points: Sequence[Point]) -> str:
    """Why some failed."""
    launches = count_text(sum(point.lost_repetitions for point in points), "launch")
    completed = {each.repetition for each in points[0].records if each.status is Status.OK}
    failed = [r for r in points[0].records if r.status is not Status.INTERRUPTED]
    last = next(r for r in reversed(failed) if r.repetition not in completed)
    reason = last.reason or "; ".join(last.warnings)
    return (
        f"Exit status {SOME_FAILED}: of {launches} no attempt ended well, for instance "
        f"{points[0].experiment.title}: {reason}"
    )


def summarise_sweep(results: SweepResults, _: Sequence[Case]) -> None:
    """Write `summary.csv` and say where."""
    path = results.files.folder / "summary.csv"
    write_summary(path, results.files.table)
    echo(path)


def report_sweep(results: SweepResults, cases: Sequence[Case]) -> None:
    """Write all files of one sweep, and print verdicts, tables and paths."""
    folder, names = results.files.folder, file_names(cases)
    reports = [
        CaseReport(
            case=case,
            verdict=verdict(case),
            figures=save_figures(case, folder, names[case]),
            exchanges=[
                each
                for each in results.files.definition.exchanges
                if each.model == case.conditions["model"]
            ],
            traces=save_traces(case, folder),
        )
        for case in cases
    ]
    write_summary(folder / "summary.csv", results.files.table)
    study = study_page(results, cases)
    write_report(folder / "report.html", results, reports, study, ahead_page(results))
    show(_console(), results, reports, study)


def _console() -> Console:
    return Terminal(highlight=False, width=None if sys.stdout.isatty() else SCREEN_WIDTH)


def main(words: Sequence[str] | None = None) -> int:
    """Run the command and return the exit status; what went wrong is told in one sentence."""
    end_as_interrupted()
    try:
        cli.main(args=words, prog_name="python -m analysis", standalone_mode=False)
    except click.exceptions.Exit as stop:
        return stop.exit_code
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except click.ClickException as mistake:
        told = io.StringIO()
        mistake.show(told)
        echo(told.getvalue().rstrip("\n"), err=True)
        return MISTAKE
    except SuiteError as error:
        echo(f"Error: {error}", err=True)
        return MISTAKE
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        echo(f"Error: {where}{error.strerror or error}.", err=True)
        return MISTAKE
    return OK


if __name__ == "__main__":
    end_in_order()
    gc.freeze()
    gc.set_threshold(_GARBAGE)
    gc.enable()
    end_with(main())
