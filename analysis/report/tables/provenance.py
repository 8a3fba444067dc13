"""Where figures come from: machine, software, commands that repeat them, and what was left out."""

from __future__ import annotations

import shlex

import pandas as pd

from analysis.data.blocks import Block, SweepResults
from analysis.report.tables.what_was_run import Items
from analysis.wording import count_text
from ps_allreduce.record.records import Status


def moment_text(moment: pd.Timestamp) -> str:
    """A moment with its zone, to the second."""
    return moment.strftime("%Y-%m-%d %H:%M:%S %Z")


def repeat_lines(results: SweepResults) -> list[str]:
    """What to type for the same runs and the same report: every command that made some of them."""
    block = results.block
    commands = dict.fromkeys(record.provenance.command for record in block.records)
    folder = shlex.quote(str(results.files.folder))
    return [
        _checkout_line(block.provenance.commit),
        "make setup",
        *(_of_environment(command) for command in commands),
        _of_environment(f"python -m analysis report -- {folder}"),
    ]


def _checkout_line(commit: str) -> str:
    """With a remark where the commit alone is not what was run."""
    name, _, remark = commit.partition(" ")
    if name.startswith("unknown"):
        return f"# the commit is not known: {remark}"
    return f"git checkout {name}{f'  # {remark}' if remark else ''}"


def _of_environment(command: str) -> str:
    """With the Python that `make setup` makes."""
    program, _, rest = command.partition(" ")
    return f".venv/bin/python {rest}" if program.startswith("python") else command


def provenance_items(block: Block) -> Items:
    """The runs of a block, what others used of their hosts, and what they were made with."""
    made_with = block.provenance
    foreign, begun = block.table["foreign_load"].dropna(), block.table["started_at"]
    ended = block.table["finished_at"]
    cores = ", ".join(str(core) for core in made_with.affinity)
    return [
        ("block", block.fingerprint),
        (
            "runs",
            f"{len(begun)}, from {moment_text(begun.min())} to {moment_text(ended.max())}",
        ),
        ("processor time that others used while measuring", _range_text(foreign)),
        ("commit", ", ".join(block.table["commit"].unique())),
        ("measured program", made_with.program),
        ("versions", ", ".join(f"{name} {value}" for name, value in made_with.versions.items())),
        ("environment", made_with.environment),
        ("settings", ", ".join(f"{name}={value}" for name, value in made_with.settings.items())),
        ("started on", made_with.host),
        ("system", made_with.system),
        ("processor", f"{made_with.cpu_model}, {made_with.cpu_count} in all, usable {cores}"),
        ("vector extensions", ", ".join(made_with.cpu_flags) or "none known"),
        ("memory", f"{made_with.memory_bytes / 1e9:.1f} GB"),
    ]


def _range_text(shares: pd.Series) -> str:
    return f"{shares.min():.1%} to {shares.max():.1%}" if len(shares) else "not known"


def block_lines(results: SweepResults) -> list[str]:
    """Runs that are left out, and what sets them apart from those that are analysed."""
    if not results.older_blocks:
        return ["None: all records are of one machine, one software and one measured program."]
    lines = [
        f"{block.fingerprint}: {count_text(len(block.table), 'run')}, the last begun "
        f"{moment_text(block.table['started_at'].max())}; {'; '.join(block.differences)}."
        for block in results.older_blocks
    ]
    return [
        "Runs of another machine, software or measured program are never pooled; the newest block "
        "is analysed. All blocks are in summary.csv.",
        *lines,
    ]


def unusable_rows(results: SweepResults) -> pd.DataFrame:
    """Attempts that did not end well, where their logs lie, and why."""
    table = results.block.table
    bad = table[table["status"] != Status.OK]
    titles = {r.experiment_id: r.experiment.title for r in results.block.records}
    return pd.DataFrame(
        {
            "point": bad["experiment_id"].map(titles),
            "run": bad["run_id"].str.split("/").str[-1],
            "status": bad["status"].astype("string").str.replace("_", " "),
            "reason": bad["reason"],
            "log": bad["record_path"].str.replace(r"json$", "log", regex=True),
        }
    )
