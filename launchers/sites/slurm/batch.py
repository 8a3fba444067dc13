"""The batch script that runs a sweep, and its submission.

Decides what is asked of Slurm and that the script holds nothing that a shell could misread.  What
the sweep is, and whether it is time to submit, is decided by `experiments`.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from launchers.processes import run_quietly
from ps_allreduce.errors import UserError

SUBMIT_S = 60.0

#: Options that would contradict what the suite itself asks for or relies on.
RESERVED = ("array", "a", "requeue", "wait", "W", "nodes", "N", "ntasks", "n", "parsable", "wrap")


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchJob:
    """What a job asks for and does.

    Attributes:
        minutes: time limit.
        whole_nodes: nobody else may use the nodes.
        options: further options of `sbatch`, as they are typed there.
        setup: lines of shell that the site needs, such as `module load`, exactly as given.
        log: takes the output of the batch script.
        folder: working directory.
        variables: environment variables to set.
        command: the words of the suite's own command.
        after: a job that this one waits for, however that ends.
    """

    name: str
    num_hosts: int
    minutes: int
    partition: str | None = None
    account: str | None = None
    constraint: str | None = None
    gpus_per_node: str | None = None
    whole_nodes: bool = True
    options: tuple[str, ...] = ()
    setup: tuple[str, ...] = ()
    log: Path
    folder: Path
    variables: Mapping[str, str]
    command: tuple[str, ...]
    after: str | None = None

    def __post_init__(self) -> None:
        if self.num_hosts < 1:
            raise UserError(f"a job needs at least 1 host, got {self.num_hosts}.")
        for line in (*self._values(), *self.options, *self.setup):
            if "\n" in line:
                raise UserError(f"a line break has no place in a job's options: {line!r}.")
        for value in self._values():
            if not re.fullmatch(r"[\w.,:@%+*|&()\[\]=/-]+", value) or value.startswith("-"):
                raise UserError(f"{value!r} is no value for an option of sbatch.")
        for option in self.options:
            _check_option(option)

    def _values(self) -> list[str]:
        given = (self.partition, self.account, self.constraint, self.gpus_per_node, self.after)
        return [self.name, *(value for value in given if value is not None)]

    @property
    def node_hours(self) -> float:
        """What the job costs if it uses its whole limit."""
        return self.num_hosts * self.minutes / 60


def _check_option(option: str) -> None:
    name = option.lstrip("-").partition("=")[0].partition(" ")[0]
    if not option.startswith("-") or not name:
        raise UserError(
            f"--sbatch takes an option of sbatch with its dashes, for instance "
            f"--sbatch=--qos=normal; got {option!r}."
        )
    if name in RESERVED:
        raise UserError(f"--sbatch {option}: the suite decides this option itself; leave it out.")


def render_script(job: BatchJob) -> str:
    """The text of the batch script."""
    asked = [
        f"--job-name={job.name}",
        f"--nodes={job.num_hosts}",
        "--ntasks-per-node=1",
        f"--time={job.minutes}",
        "--no-requeue",  # the suite resumes by itself, in a job that is asked for
        f"--output={_pattern_free(job.log)}",
        "--open-mode=append",
    ]
    asked += ["--exclusive"] if job.whole_nodes else []
    asked += [f"--partition={job.partition}"] if job.partition else []
    asked += [f"--account={job.account}"] if job.account else []
    asked += [f"--constraint={job.constraint}"] if job.constraint else []
    asked += [f"--gpus-per-node={job.gpus_per_node}"] if job.gpus_per_node else []
    # Last, so that it holds even if an option of the user's says something else.
    order = [f"--dependency=afterany:{job.after}"] if job.after else []
    exports = [
        f"export {name}={shlex.quote(value)}" for name, value in sorted(job.variables.items())
    ]
    lines = [
        "#!/bin/bash",
        *(f"#SBATCH {option}" for option in (*asked, *job.options, *order)),
        "",
        *(text for line in job.setup for text in (line, _check_of(line))),
        *exports,
        f"cd -- {shlex.quote(str(job.folder))} || exit 2",
        "# In the shell's place, so that Slurm's signals reach it.",
        f"exec {shlex.join(job.command)}",
    ]
    return "\n".join(lines) + "\n"


def _check_of(line: str) -> str:
    """A measurement in another environment than the one asked for is worse than none."""
    said = shlex.quote(f"The setup line failed: {line}")
    return f'[ "$?" -eq 0 ] || {{ echo {said} >&2; exit 2; }}'


def _pattern_free(path: Path) -> str:
    """A path as `--output` takes it: percent signs are patterns there."""
    text = str(path)
    if re.search(r"[\s\"'\\]", text):
        raise UserError(
            f"{path}: sbatch cannot take a log file whose path has spaces or quotes; choose "
            "another RESULTS."
        )
    return text.replace("%", "%%")


def submit(script: Path) -> str:
    """Hand a script to Slurm; return the number of the job.

    Raises:
        UserError: Slurm refuses it; the message is Slurm's own.
        LaunchError: there is no Slurm, or it does not answer.
    """
    answer = run_quietly(["sbatch", "--parsable", str(script)], SUBMIT_S)
    if answer is None:
        raise UserError("sbatch is missing here or does not answer; use a cluster's login node.")
    if answer.status != 0:
        raise UserError(f"Slurm refuses the job: {' '.join(answer.err.split())}")
    return answer.out.strip().partition(";")[0]


def smallest_node(partition: str | None) -> int:
    """CPUs of the smallest node of a partition, or of the default one.

    Raises:
        UserError: no Slurm answers, or it has no such partition.
    """
    answer = run_quietly(["sinfo", "-h", "-o", "%P %c"], SUBMIT_S)
    if answer is None or answer.status != 0:
        raise UserError(
            "no Slurm answers here (sinfo is missing, or its controller is not reached): log in to "
            "a cluster's login node, or use another launcher."
        )
    sizes = parse_node_sizes(answer.out)
    wanted = partition or next((name for name in sizes if name.endswith("*")), "")
    found = [size for name, size in sizes.items() if name.rstrip("*") == wanted.rstrip("*")]
    if not found:
        there = ", ".join(name.rstrip("*") for name in sizes) or "none"
        problem = (
            f"there is no partition {partition}" if partition else "no partition is the default"
        )
        raise UserError(f"{problem}; choose one with --partition: {there}.")
    return found[0]


def parse_node_sizes(text: str) -> dict[str, int]:
    """The smallest number of each partition, from lines of `partition cpus`.

    The default partition's name ends in a star, and numbers may end in a plus.
    """
    sizes: dict[str, int] = {}
    for row in (line.split() for line in text.splitlines()):
        if len(row) == 2 and (match := re.match(r"\d+", row[1])):
            sizes[row[0]] = min(int(match[0]), sizes.get(row[0], int(match[0])))
    return sizes
