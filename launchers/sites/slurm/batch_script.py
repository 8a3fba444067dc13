"""The text of a batch script for Slurm.  Pure.

Decides how a job is asked for, and that the script holds nothing that a shell could misread.  With
hosts that are named for servers it is a heterogeneous job of two components.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from pathlib import Path

from launchers.scheduler import BatchJob
from ps_allreduce.errors import UserError

#: Options that would contradict what the suite itself asks for or relies on.
RESERVED = ("array", "requeue", "wait", "nodes", "ntasks", "output", "parsable", "wrap")
RESERVED_LETTERS = "aWNno"

#: Options of one letter after which sbatch reads the next letter as another option.
_WITHOUT_VALUE = "hHIkOQsuvVW"


def render_script(job: BatchJob) -> str:
    """The text of the batch script.

    Raises:
        UserError: a value, an option or the log's path has no place in it.
    """
    _check(job)
    lines = [
        "#!/bin/bash",
        *(f"#SBATCH {option}" for option in _options(job)),
        *(["#SBATCH hetjob"] if job.num_ps_hosts else []),
        *(f"#SBATCH {option}" for option in _options_for_servers(job)),
        "",
        *(text for line in job.settings.setup for text in (line, _check_of(line))),
        *(f"export {name}={shlex.quote(value)}" for name, value in sorted(job.variables.items())),
        f"cd -- {shlex.quote(str(job.folder))} || exit 2",
        "# In the shell's place, so that Slurm's signals reach it.",
        f"exec {shlex.join(job.command)}",
    ]
    return "\n".join(lines) + "\n"


def _check(job: BatchJob) -> None:
    for value in job.values:
        if not re.fullmatch(r"[\w.,:@%+*|&()\[\]=/-]+", value) or value.startswith("-"):
            raise UserError(f"{value!r} is no value for an option of sbatch.")
    for option in (*job.settings.sbatch, *job.settings.ps_sbatch):
        _check_option(option)


def _options(job: BatchJob) -> list[str]:
    stated = {
        "partition": job.settings.partition,
        "account": job.settings.account,
        "constraint": job.settings.constraint,
        "gpus-per-node": job.settings.gpus_per_node,
    }
    return [
        f"--job-name={job.name}",
        f"--nodes={job.num_hosts}",
        "--ntasks-per-node=1",
        f"--time={job.minutes}",
        "--no-requeue",  # the suite resumes by itself, in a job that is asked for
        f"--output={_pattern_free(job.log)}",
        "--open-mode=append",
        *([] if job.settings.shared_nodes else ["--exclusive"]),
        *(f"--{name}={value}" for name, value in stated.items() if value),
        *job.settings.sbatch,
        # Last, so that it holds even if an option of the user's says something else.
        *([f"--dependency=afterany:{job.after}"] if job.after else []),
    ]


def _options_for_servers(job: BatchJob) -> list[str]:
    """Of the second component of a heterogeneous job; none in a plain one.

    Slurm takes over some options of the first component and not others, which differs between
    versions, so all that count are said again.
    """
    if not job.num_ps_hosts:
        return []
    stated = {"partition": job.settings.partition, "account": job.settings.account}
    return [
        f"--nodes={job.num_ps_hosts}",
        "--ntasks-per-node=1",
        f"--time={job.minutes}",
        *([] if job.settings.shared_nodes else ["--exclusive"]),
        *(f"--{name}={value}" for name, value in stated.items() if value),
        *job.settings.ps_sbatch,
    ]


def _check_option(option: str) -> None:
    words = _words(option)
    if not words or not option.isprintable() or not re.match("--?[A-Za-z]", words[0]):
        raise UserError(
            f"--sbatch takes an option of sbatch with its dashes, for instance "
            f"--sbatch=--qos=normal; got {option!r}."
        )
    if "#" in option:
        raise UserError(f"--sbatch {option}: sbatch takes '#' for a comment's beginning.")
    if states(option, RESERVED, RESERVED_LETTERS):
        raise UserError(f"--sbatch {option}: the suite decides this option itself; leave it out.")


def states(option: str, names: Sequence[str], letters: str) -> bool:
    """A text states one of some options, as sbatch reads it.

    Names may be cut short, and letters stand side by side.
    """
    return any(_is_one_of(word, names, letters) for word in _words(option))


def _words(option: str) -> list[str]:
    try:
        return shlex.split(option)
    except ValueError:
        return []


def _is_one_of(word: str, names: Sequence[str], letters: str) -> bool:
    if word.startswith("--"):
        name = word[2:].partition("=")[0]
        return any(each.startswith(name) for each in names)
    for letter in word[1:] if word.startswith("-") else "":
        if letter in letters:
            return True
        if letter not in _WITHOUT_VALUE:
            return False
    return False


def _check_of(line: str) -> str:
    """A measurement in another environment than the one asked for is worse than none."""
    said = shlex.quote(f"The setup line failed: {line}")
    return f'[ "$?" -eq 0 ] || {{ echo {said} >&2; exit 2; }}'


def _pattern_free(path: Path) -> str:
    """A path as `--output` takes it: percent signs are patterns there, and '#' begins a comment."""
    text = str(path)
    if re.search(r"[\s\"'\\#]", text):
        raise UserError(
            f"{path}: sbatch cannot take a log file whose path has spaces, quotes or '#'; choose "
            "another RESULTS."
        )
    return text.replace("%", "%%")


def exclude_text(hosts: Sequence[str]) -> str:
    """What to paste so that a job is made without some hosts."""
    option = f"--exclude={','.join(hosts)}"
    return f"For salloc and sbatch, or in ARGS as --sbatch={option}:\n{option}"
