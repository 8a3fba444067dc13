"""The command `doctor`: from options to a table and an exit status, with or without a model."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from launchers import make_site
from launchers.cli.options import LAUNCHER, BriefCommand
from launchers.doctor.check_findings import coloured, has_failed, render
from launchers.doctor.checks import examine
from launchers.doctor.gather import NUM_STEPS, gather
from launchers.doctor.trials import rounds_of_pairs
from launchers.settings import LauncherSettings
from ps_allreduce.point.workload import Workload
from ps_allreduce.terminal import Terminal

#: Characters of a line that goes into a file or a pipe.
FILE_WIDTH = 100


@click.command(cls=BriefCommand)
@LAUNCHER
def doctor(launcher: LauncherSettings) -> int:
    """Find what is wrong with the hosts before it costs hours; trains nothing."""
    return look_at_hosts(launcher)


def look_at_hosts(launcher: LauncherSettings, workload: Workload | None = None) -> int:
    """Ask the hosts everything, and show the table.

    Args:
        workload: whose model every host is to build; the copies of a user's files are here.

    Returns:
        The exit status: 1 after a failure.

    Raises:
        UserError: the site refuses, or a host has no network that was asked for.
        LaunchError: the site itself does not come up.
    """
    site = make_site(launcher)
    begin = time.monotonic()
    num_steps = NUM_STEPS + len(rounds_of_pairs(site.hosts)) + (workload is not None)
    with progress_bar(Terminal(stderr=True), num_steps) as tell:
        facts = gather(
            site,
            Path(os.path.realpath(launcher.results)),  # Path.resolve raises for a loop of links
            launcher.interface,
            mixed_hosts=launcher.mixed_hosts,
            tell=tell,
            workload=workload,
        )
    findings = examine(facts)
    table = render(
        findings,
        num_hosts=len(facts.hosts),
        seconds=time.monotonic() - begin,
        avoid=site.avoid,
        width=shutil.get_terminal_size((FILE_WIDTH, 0)).columns,
    )
    Terminal(highlight=False, soft_wrap=True).print(coloured(table))
    return 1 if has_failed(findings) else 0


@contextmanager
def progress_bar(console: Console, total: int) -> Iterator[Callable[[str], None]]:
    """A bar that is told what is being done; nothing where there is no terminal."""
    bar = Progress(
        BarColumn(bar_width=20),
        TimeElapsedColumn(),
        TextColumn("{task.description}", markup=False),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )
    with bar:
        task = bar.add_task("", total=total)
        yield lambda doing: bar.update(task, advance=1, description=doing)
