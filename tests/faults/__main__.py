"""Command line: `python -m tests.faults --help`."""

from __future__ import annotations

import os
import secrets
import signal
import sys
from pathlib import Path

import click
import pandas as pd
from rich.console import Console

from experiments.sweep.folder import check_folder
from experiments.sweep.progress import counting_bar
from launchers.cli.types import WHOLE
from launchers.sites.emulated.held_network import needs_user_namespace
from ps_allreduce.errors import UserError, at_least
from ps_allreduce.record.provenance import ROOT
from tests.faults.ground import hide_mounts
from tests.faults.one_sweep import sweep_under_faults
from tests.faults.plan import LAUNCHERS, draw_plan
from tests.faults.tally import FaultLine, Verdict, append, read, summarise


@click.command()
@click.option("--faults", type=WHOLE, default=20, show_default=True, help="How many.")
@click.option("--seed", type=WHOLE, help="Of the first sweep; the next has the next number.")
@click.option("--launcher", type=click.Choice(list(LAUNCHERS)), help="Only this one.")
@click.option(
    "--file",
    type=Path,
    default=ROOT / "results" / "faults.jsonl",
    show_default="results/faults.jsonl",
    help="Takes a line per fault.",
)
def main(faults: int, seed: int | None, launcher: str | None, file: Path) -> None:
    """Inject faults at random moments into real sweeps.  Exit status 1 if something broke."""
    try:
        at_least(1, faults=faults)
        check_folder(file.parent)
    except UserError as error:
        raise click.UsageError(str(error)) from error
    if needs_user_namespace():
        _begin_again_as_root_of_a_namespace()
    hide_mounts()
    # What a shell ignores for jobs in the background, the suite would ignore, too.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: sys.exit(130))
    console = Console(stderr=True)
    first = secrets.randbelow(10**9) if seed is None else seed
    lines: list[FaultLine] = []
    with counting_bar(console, f"faults, from seed {first}") as progress:
        while (injected := sum(line.verdict is not Verdict.MISSED for line in lines)) < faults:
            progress(injected, faults)
            lines += _one_sweep(first, launcher, file, console)
            first += 1
    click.echo("This call:")
    _print(summarise(lines))
    click.echo(f"All faults in {file}:")
    _print(summarise(read(file)))
    sys.exit(any(line.verdict is Verdict.BROKE for line in lines))


def _begin_again_as_root_of_a_namespace() -> None:
    words = ["unshare", "--user", "--map-root-user", "--", sys.executable, "-m", "tests.faults"]
    os.execvp(words[0], [*words, *sys.argv[1:]])


def _one_sweep(seed: int, launcher: str | None, file: Path, console: Console) -> list[FaultLine]:
    lines = sweep_under_faults(draw_plan(seed, launcher), file.with_suffix(""))
    append(file, lines)
    for line in lines:
        text = f"{line.verdict:<6} {line.seed} {line.launcher}: {line.fault} ({line.moment})"
        console.print(text, highlight=False, markup=False, soft_wrap=True)
    for broken in dict.fromkeys(text for line in lines for text in line.broke):
        console.print(f"       {broken}", highlight=False, markup=False, soft_wrap=True)
    return lines


def _print(table: pd.DataFrame) -> None:
    click.echo(table.to_string())
    injected, broke = table[["held", "broke"]].to_numpy().sum(), table["broke"].sum()
    click.echo(f"{injected} faults injected, {broke} in sweeps in which something broke.")


if __name__ == "__main__":
    main()
