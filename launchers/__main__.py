"""Command line of the launchers: `python -m launchers COMMAND --help`.

Exit status: 0 all is well, 1 something is wrong with the hosts, 2 the user's mistake, 130
interrupted.
"""

from __future__ import annotations

from collections.abc import Sequence

from ps_allreduce.process import end_at_once, end_in_order, end_with

if __name__ == "__main__":
    end_at_once()

import click

from launchers.cli.plan_tasks import plan
from launchers.cli.run import run_command_line
from launchers.doctor.command import doctor
from launchers.hosts.hosts_command import hosts


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def cli() -> None:
    """Look at hosts and layouts, or set up hosts; nothing is trained."""


cli.add_command(doctor)
cli.add_command(hosts)
cli.add_command(plan)


def main(words: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit status."""
    return run_command_line(cli, words, "python -m launchers")


if __name__ == "__main__":
    end_in_order()
    end_with(main())
