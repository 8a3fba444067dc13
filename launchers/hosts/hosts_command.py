"""The command `hosts`: from a host file to hosts that are ready, and an exit status."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import click
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from launchers.cli.run import shortened
from launchers.cli.types import PATH
from launchers.hosts.goal import Goal, goal_here, marked
from launchers.hosts.needs import told_lines
from launchers.hosts.set_up import HostOutcome, Tell, log_of, set_up_hosts
from launchers.settings import LauncherSettings
from launchers.sites.ssh.hostfile import SshHost
from launchers.sites.ssh.ssh_site import read_host_file, refuse_without_ssh
from ps_allreduce.errors import UserError
from ps_allreduce.terminal import Terminal, echo

#: Lines of a log that are shown.
NUM_LINES = 5

AGAIN = "The same command does only what is missing."


@click.command()
@click.option("--host-file", type=PATH, help="A host per line, as the launcher ssh reads it.")
@click.option(
    "--results",
    type=PATH,
    default=LauncherSettings().results,
    show_default=True,
    help="Results folder; the log of a host is hosts/NAME.log in it.",
)
@click.option("--wheelhouse", type=PATH, help="Folder of packages, for hosts without internet.")
@click.option("--python", help="Python that makes environments on hosts; default: the one here.")
def hosts(
    host_file: Path | None, results: Path, wheelhouse: Path | None, python: str | None
) -> int:
    """Copy the checkout to every host of a host file, and set up its environment there."""
    if host_file is None:
        raise UserError(
            "hosts needs a file with a host per line, [user@]name[:port] [private-address]: "
            "make hosts HOSTS=hosts.txt, or --host-file hosts.txt."
        )
    described = read_host_file(host_file)
    refuse_without_ssh()
    goal = goal_here(python, wheelhouse)
    failed = _work(described, goal, _made(results / "hosts"))
    if failed:
        echo(f"{failed} of {len(described)} hosts failed; mend the faults above. {AGAIN}")
        return 1
    echo(f"{len(described)} of {len(described)} hosts are ready. Next, look for trouble:")
    echo(f'make doctor LAUNCHER=ssh ARGS="--host-file {host_file}"')
    return 0


def _made(folder: Path) -> Path:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(
            f"the folder {folder} for logs cannot be made ({error.strerror}); name another results "
            "folder with --results."
        ) from error
    return folder


def _work(described: Sequence[SshHost], goal: Goal, logs: Path) -> int:
    """Make all hosts ready, and tell of each: how many failed."""
    console = Terminal(highlight=False, markup=False, soft_wrap=True)
    failed = 0
    try:
        with (
            marked(goal),
            _progress(console, described) as tell,
            closing(set_up_hosts(described, goal, logs, tell)) as outcomes,
        ):
            for outcome in outcomes:
                failed += outcome.has_failed
                tell(outcome.host, "")
                console.print(shortened(_told(outcome, logs)))
    except KeyboardInterrupt:
        echo(f"Interrupted: nothing goes on on the hosts. {AGAIN}", err=True)
        raise
    return failed


def _told(outcome: HostOutcome, logs: Path) -> str:
    """A line; of a host that failed, also where its log is and how it ends."""
    if not outcome.has_failed:
        return f"{outcome.host}: {outcome.text}"
    log = log_of(logs, outcome.host)
    said = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
    ends = [f"    | {line}" for line in told_lines(said)[-NUM_LINES:]]
    return "\n".join([f"{outcome.host}: FAILED. {outcome.text}", *ends, f"    log: {log}"])


@contextmanager
def _progress(console: Console, described: Sequence[SshHost]) -> Iterator[Tell]:
    """A line for each host that is worked on: what is done there, and for how long already.

    An empty text ends it.  Nothing is shown where there is no terminal.
    """
    if not console.is_terminal:
        yield lambda host, doing: None
        return
    lines = Progress(
        SpinnerColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[host]}: {task.description}", markup=False),
        console=console,
        transient=True,
    )
    with lines:
        tasks = {
            host.name: lines.add_task("", start=False, visible=False, host=host.name)
            for host in described
        }

        def tell(host: str, doing: str) -> None:
            lines.start_task(tasks[host])
            lines.update(tasks[host], description=doing, visible=bool(doing))

        yield tell
