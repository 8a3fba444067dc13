"""How a command line of the suite ends: errors become sentences and statuses in one place.

Decides the exit status: 0 all is well, or what the command returns; 1 something failed, 2 the
user's mistake, 130 interrupted.  Decides also that a setting is named as it is typed, and that
very long words are repeated without their middle.
"""

from __future__ import annotations

import io
import os
import re
import sys
from collections.abc import Sequence
from contextlib import suppress

import click

from ps_allreduce.errors import (
    SHORTAGES,
    RecordFormatError,
    SuiteError,
    UserError,
    in_a_sentence,
)
from ps_allreduce.process import end_as_interrupted
from ps_allreduce.terminal import echo

NO_ASSERTIONS = (
    "without its assertions the suite would not notice that TensorFlow does something unexpected: "
    "leave python -O and PYTHONOPTIMIZE out."
)

#: Characters of a word that is shown whole: few paths are longer.
LONGEST_WORD = 400

#: The name of a setting where a sentence says which values it may have, and what it goes with.
SETTING = re.compile(
    r"(?<![\w./'-])(?:[a-z_]+(?= must )|[a-z]+_[a-z_]+(?= (?:belongs|adds|needs|\d)))"
)


def run_command_line(
    cli: click.Group, words: Sequence[str] | None, name: str, interrupted: str = ""
) -> int:
    """Run a group of commands and return the exit status.

    Args:
        words: the arguments, None for those of this process.
        name: how the program is called, for help.
        interrupted: said after an interruption.
    """
    end_as_interrupted()
    return _flushed(_status_of(cli, words, name, interrupted))


def _status_of(cli: click.Group, words: Sequence[str] | None, name: str, interrupted: str) -> int:
    try:
        if not __debug__:
            raise UserError(NO_ASSERTIONS)
        status = cli.main(args=words, prog_name=name, standalone_mode=False)
    except SystemExit as stop:
        status = stop.code
    except click.exceptions.Exit as stop:
        return stop.exit_code
    except (click.Abort, KeyboardInterrupt):
        if interrupted:
            _say(interrupted)
        return 130
    except click.ClickException as mistake:
        told = io.StringIO()
        mistake.show(told)
        _say(told.getvalue().rstrip("\n"))
        return 2
    except SuiteError as error:
        _say(f"Error: {_typed(error, cli, words)}")
        return 2 if isinstance(error, UserError) else 1
    except OSError as error:
        if error.errno not in SHORTAGES:
            raise
        _say(f"Error: {in_a_sentence(error)}")
        return 1
    return status if isinstance(status, int) else 0


def _typed(error: SuiteError, cli: click.Group, words: Sequence[str] | None) -> str:
    """Settings by the options of the command, which whoever checks a setting does not know."""
    if isinstance(error, RecordFormatError):  # of a file, in which nobody typed them
        return str(error)
    command = cli.commands.get(next(iter(sys.argv[1:] if words is None else words), ""))
    options = {each.name: each.opts[0] for each in command.params} if command else {}
    return SETTING.sub(lambda name: options.get(name[0], name[0]), str(error))


def _say(text: str) -> None:
    with suppress(OSError):  # the status can still be told
        echo(shortened(text), err=True)


def _flushed(status: int) -> int:
    """The status, or 1 where output is lost; at its end Python would complain, and change it."""
    for stream in filter(None, (sys.stdout, sys.stderr)):
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
            status = status or 1
    return status


def shortened(text: str) -> str:
    """The middle of very long words left out."""
    return re.sub(
        rf"\S{{{LONGEST_WORD},}}",
        lambda word: f"{word[0][:60]}...{word[0][-20:]} ({len(word[0])} characters)",
        text,
    )
