"""The command `doctor`: from options to a table and an exit status."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from launchers import make_site
from launchers.doctor.checks import examine
from launchers.doctor.gather import NUM_STEPS, gather
from launchers.doctor.render import has_failed, render
from launchers.doctor.speed import num_rounds
from launchers.options import LAUNCHER, settings_from

#: Of lines that go into a file or a pipe.
USUAL_WIDTH = 100


@click.command()
@LAUNCHER
def doctor(**given: Any) -> int:
    """Find what is wrong with the hosts before it costs hours; trains nothing."""
    site = make_site(given["launcher"], settings_from(given))
    begin = time.monotonic()
    with following(Console(stderr=True), NUM_STEPS + num_rounds(len(site.hosts))) as tell:
        facts = gather(
            site,
            given["results"].resolve(),
            given["interface"],
            mixed_hosts=given["mixed_hosts"],
            tell=tell,
        )
    found = examine(facts)
    table = render(
        found,
        num_hosts=len(facts.hosts),
        seconds=time.monotonic() - begin,
        scheduled=facts.scheduled,
        width=shutil.get_terminal_size((USUAL_WIDTH, 0)).columns,
    )
    click.echo(table)
    return 1 if has_failed(found) else 0


@contextmanager
def following(console: Console, total: int) -> Iterator[Callable[[str], None]]:
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
