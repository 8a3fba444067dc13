"""The command `doctor`: from options to a table and an exit status."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from launchers import make_site
from launchers.cli.options import LAUNCHER
from launchers.doctor.checks import examine
from launchers.doctor.findings import has_failed, render
from launchers.doctor.gather import NUM_STEPS, gather
from launchers.doctor.trials import rounds_of_pairs
from launchers.settings import LauncherSettings

#: Characters of a line that goes into a file or a pipe.
FILE_WIDTH = 100


@click.command()
@LAUNCHER
def doctor(launcher: LauncherSettings) -> int:
    """Find what is wrong with the hosts before it costs hours; trains nothing."""
    site = make_site(launcher)
    begin = time.monotonic()
    num_steps = NUM_STEPS + len(rounds_of_pairs(site.hosts))
    with progress_bar(Console(stderr=True), num_steps) as tell:
        facts = gather(
            site,
            launcher.results.resolve(),
            launcher.interface,
            mixed_hosts=launcher.mixed_hosts,
            tell=tell,
        )
    findings = examine(facts)
    table = render(
        findings,
        num_hosts=len(facts.hosts),
        seconds=time.monotonic() - begin,
        avoid=site.avoid,
        width=shutil.get_terminal_size((FILE_WIDTH, 0)).columns,
    )
    click.echo(table)
    return 1 if has_failed(findings) else 0


@contextmanager
def progress_bar(console: Console, total: int) -> Iterator[Callable[[str], None]]:
    """A bar that is told what is being done; nothing where there is no terminal."""
    bar = Progress(
        BarColumn(bar_width=20),
        TimeElapsedColumn(),
        TextColumn("{task.description}"),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )
    with bar:
        task = bar.add_task("", total=total)
        yield lambda doing: bar.update(task, advance=1, description=doing)
