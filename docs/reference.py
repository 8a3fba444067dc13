"""Commands, options and columns, made from their declarations whenever the site is built."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from analysis.__main__ import cli as analysis
from analysis.data import columns
from experiments.__main__ import cli as experiments
from launchers.__main__ import cli as launchers

if TYPE_CHECKING:
    from sphinx.application import Sphinx

#: The sweep whose options are listed once; other commands list what they have besides.
SHARED = "compare"

GROUPS = {"experiments": experiments, "launchers": launchers, "analysis": analysis}

Row = tuple[str, str]

TYPES = {
    columns.TEXT: "text",
    columns.WHOLE: "integer",
    columns.REAL: "number",
    columns.TRUTH: "truth",
    columns.MOMENT: "time",
}


def setup(app: Sphinx) -> dict[str, bool]:
    """Fill pages in before they are parsed, always: declarations may have changed."""
    app.connect("source-read", fill)
    app.connect("env-get-outdated", lambda *_: ["commands", "results_format"])
    return {"parallel_read_safe": True}


def fill(app: Sphinx, page: str, source: list[str]) -> None:
    """Put what is declared where a page has a mark."""
    for mark, lines in MARKS.items():
        if mark in source[0]:
            source[0] = source[0].replace(mark, "\n".join(lines()))


def column_lines() -> Iterator[str]:
    """The columns of the table of runs, in Markdown."""
    yield from ("| column | type | meaning |", "|---|---|---|")
    for names, meaning in columns.MEANINGS.items():
        kinds = list(dict.fromkeys(TYPES[columns.COLUMNS[name]] for name in names))
        named = ", ".join(f"`{name}`" for name in names)
        yield f"| {named} | {', '.join(kinds)} | {meaning} |"


def command_lines() -> Iterator[str]:
    """Commands and options, in Markdown."""
    yield from ("## make", "", "```text", *_make(), "```", "")
    shared = options(experiments.commands[SHARED])
    yield from ("## Options of sweeps", "", *table(shared))
    for name, group in GROUPS.items():
        yield from (f"## python -m {name}", "")
        for word, command in sorted(group.commands.items()):
            yield from described(f"{name} {word}", command, shared)


def readme_lines() -> Iterator[str]:
    """The README, to which the first page only links outside of the site."""
    yield from ("```{include} ../README.md", ":relative-docs: docs/", ":relative-images:")
    yield from (':end-before: "## Documents"', "```")


MARKS = {
    "<!-- commands -->": command_lines,
    "<!-- columns -->": column_lines,
    "# [Parameter servers or all-reduce?](../README.md)": readme_lines,
}


def _make() -> Iterator[str]:
    text = (Path(__file__).resolve().parents[1] / "Makefile").read_text(encoding="utf-8")
    yield from (line[3:] for line in text.splitlines() if line.startswith("#:"))


def described(title: str, command: click.Command, shared: list[Row]) -> Iterator[str]:
    """One command: what it does, and the options that it does not share."""
    own = options(command)
    about = inspect.cleandoc(command.help or "").split("\n\n")[0]
    yield from (f"### {title}", "", plain(" ".join(about.split())), "")
    arguments = [each.make_metavar(click.Context(command)) for each in arguments_of(command)]
    if arguments:
        yield from ("Arguments: " + " ".join(f"`{each}`" for each in arguments), "")
    common = [row for row in own if row in shared]
    if own == shared:
        yield from ("It has the [options of sweeps](#options-of-sweeps).", "")
    elif common:
        names = ", ".join(name.split(" ")[0].strip("`") for name, _ in common)
        yield from (f"Of the [options of sweeps](#options-of-sweeps): `{names}`.", "")
    yield from table([row for row in own if row not in shared])


def arguments_of(command: click.Command) -> list[click.Argument]:
    """What a command takes by its place."""
    return [each for each in command.params if isinstance(each, click.Argument)]


def options(command: click.Command) -> list[Row]:
    """Every option of a command, and what it means, with its default."""
    context = click.Context(command, **command.context_settings)
    own = [each for each in command.params if isinstance(each, click.Option)]
    records = [each.get_help_record(context) for each in own]
    rows = [(name.replace("|", r"\|"), text) for name, text in filter(None, records)]
    return [(f"`{name}`", plain(text)) for name, text in rows]


def table(rows: list[Row]) -> Iterator[str]:
    """A table of options; nothing where there are none."""
    if rows:
        yield from ("| option | meaning |", "|---|---|")
        yield from (f"| {name} | {text} |" for name, text in rows)
        yield ""


def plain(text: str) -> str:
    """Text in which Markdown sees nothing but words and code; options are code."""
    for sign in "*<|[":
        text = text.replace(sign, f"\\{sign}")
    return re.sub(r"(?<![`\w-])--[a-z][\w-]*", r"`\g<0>`", text)
