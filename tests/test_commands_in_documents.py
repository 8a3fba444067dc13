"""Every command in README and documents exists, and understands its options and their values."""

from __future__ import annotations

import contextlib
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from analysis.__main__ import cli as analysis
from experiments.__main__ import cli as experiments
from experiments.studies.catalogue import STUDIES
from launchers.__main__ import cli as launchers

ROOT = Path(__file__).resolve().parents[1]
PAGES = (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md")))

GROUPS = {"experiments": experiments, "launchers": launchers, "analysis": analysis}

#: Targets of make that hand ARGS to a command of another package than `experiments`.
ELSEWHERE = {
    "hosts": launchers,
    "report": analysis,
    "compare-results": analysis,
}

#: Words in capitals, and dots, stand for something of the reader's own.
OPEN = re.compile(r"\b(?:LAYOUT|SETTING|FOLDER)\b|\.\.\.|\|")

#: Folders of the reader's are looked for when an option is read.
DATA = re.compile(r"--input \S+")


def lines() -> Iterator[tuple[str, list[str]]]:
    """Every command that a page shows, by the page, as words; comments are left out."""
    for page in PAGES:
        text = page.read_text(encoding="utf-8").replace("\\\n", " ")
        blocks = re.findall(r"```\w*\n(.*?)```", text, flags=re.DOTALL)
        shown = [line for block in blocks for line in block.splitlines()]
        shown += re.findall(r"`((?:make|python -m|\.venv/bin/python -m) [^`\n]+)`", text)
        for line in shown:
            command = re.search(r"(?:^|[\s$&])(make \S.*|\S*python -m \S.*)", line.strip())
            if command and not OPEN.search(command[1]):
                yield (
                    f"{page.relative_to(ROOT)}: {command[1]}",
                    shlex.split(command[1], comments=True),
                )


COMMANDS = dict(lines())
MADE = {title: words[1:] for title, words in COMMANDS.items() if words[0] == "make"}
MODULES = {
    title: words[2:] for title, words in COMMANDS.items() if words[1] == "-m" and words[2] in GROUPS
}


def parse(group: click.Group, name: str, words: list[str]) -> None:
    """Read a command's words as it would.

    Raises:
        click.ClickException: it does not understand them.
    """
    # As below its group: a command keeps the names of the help option that it is first asked with.
    with click.Context(group, **group.context_settings) as parent:
        group.commands[name].make_context(name, words, parent=parent)


def test_there_are_commands_to_look_at() -> None:
    assert len(MADE) > 60
    assert len(MODULES) >= 5


@pytest.mark.parametrize("title", MODULES)
def test_a_command_of_a_package_is_understood(title: str) -> None:
    package, name, *words = MODULES[title]
    parse(GROUPS[package], name, words)


@pytest.mark.parametrize("title", MADE)
def test_a_target_of_make_exists_and_its_command_understands_what_it_is_given(title: str) -> None:
    targets = [word for word in MADE[title] if "=" not in word]
    variables = dict(word.split("=", 1) for word in MADE[title] if "=" in word)
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    phony = re.findall(r"^\.PHONY: (.*)$", makefile, flags=re.MULTILINE)[0].split()
    known = re.findall(r"^VARIABLES = (.*)$", makefile, flags=re.MULTILINE)[0].split()
    assert set(variables) <= set(known)
    assert set(targets) <= {*phony, *STUDIES}
    for target in targets:
        name = variables.get("NAME", target) if target == "study" else target
        group = ELSEWHERE.get(target, experiments)
        if target == "doctor" and "MODEL" not in variables:
            group = launchers
        words = shlex.split(DATA.sub("--input synthetic", variables.get("ARGS", "")))
        if words and name in group.commands:
            with contextlib.suppress(click.MissingParameter):  # make states it
                parse(group, name, words)
