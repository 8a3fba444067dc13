"""Command line of the launchers: `python -m launchers COMMAND --help`.

Exit status: 0 all is well, 1 something is wrong with the hosts, 2 the user's mistake, 130
interrupted.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Sequence

import click

from launchers.doctor.command import doctor
from launchers.plan import plan
from ps_allreduce.errors import SuiteError, UserError


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def cli() -> None:
    """Look at hosts and layouts; nothing is trained."""


cli.add_command(doctor)
cli.add_command(plan)


def main(words: Sequence[str] | None = None) -> int:
    """Run the command line; the one place where errors become sentences and statuses."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _as_interrupt)
    try:
        status = cli.main(args=words, prog_name="python -m launchers", standalone_mode=False)
    except (click.Abort, KeyboardInterrupt):
        return 130
    except click.ClickException as mistake:
        mistake.show()
        return 2
    except UserError as error:
        click.echo(f"Error: {error}", err=True)
        return 2
    except SuiteError as error:
        click.echo(f"Error: {error}", err=True)
        return 1
    return status if isinstance(status, int) else 0


def _as_interrupt(*_: object) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
