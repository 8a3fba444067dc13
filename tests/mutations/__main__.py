"""Command line: `python -m tests.mutations --help`."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import click

from ps_allreduce.record.provenance import ROOT

PLANTED = Path(__file__).with_name("planted.txt")

LEFT_OUT = shutil.ignore_patterns(".*", "__pycache__", "results", "site", "wheelhouse")

#: Of pytest: hermetic tests, a line for each that fails, and of many the first.
OPTIONS = (
    *("-q", "--tb=no", "-rfE", "--maxfail=3", "-p", "no:cacheprovider"),
    *("-m", "not tensorflow and not slow and not slurm"),
)


#: Statuses of pytest: it was called wrongly, or found no test.
NOTHING_ASKED = (4, 5)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A text in a file of the product, what takes its place, and the tests that have to notice."""

    file: str
    old: str
    new: str
    tests: tuple[str, ...]

    @classmethod
    def read(cls, block: str) -> Fault:
        """From its four lines."""
        file, old, new, tests = block.splitlines()
        return cls(
            file=file,
            old=old.removeprefix("- "),
            new=new.removeprefix("+ "),
            tests=(*tests.split(),),
        )

    def dying(self, checkout: Path) -> list[str]:
        """The tests that die of it in a copy of the checkout."""
        path = checkout / self.file
        whole = path.read_text(encoding="utf-8")
        if whole.count(self.old) != 1:
            raise click.ClickException(
                f"{self.file} holds {whole.count(self.old)} times {self.old}"
            )
        path.write_text(whole.replace(self.old, self.new), encoding="utf-8")
        try:
            done = subprocess.run(
                [sys.executable, "-m", "pytest", *OPTIONS, *self.tests],
                cwd=checkout,
                env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(checkout)},
                capture_output=True,
                check=False,
                text=True,
            )
        finally:
            path.write_text(whole, encoding="utf-8")
        if done.returncode in NOTHING_ASKED:
            raise click.ClickException(f"{self.file}: {done.stdout}{done.stderr}")
        dying = re.findall(r"^(?:FAILED|ERROR) (\S+)", done.stdout, re.MULTILINE)
        # Some faults end the tests themselves, as one in what hears SIGTERM.
        ended = done.returncode not in (0, 1, 2)
        return dying or [f"all tests, with status {done.returncode}"] * ended


def planted() -> Iterator[Fault]:
    text = re.sub(r"^#.*\n", "", PLANTED.read_text(encoding="utf-8"), flags=re.MULTILINE)
    yield from (Fault.read(block) for block in re.split(r"\n{2,}", text.strip()))


@click.command()
@click.option("--only", default="", help="Faults in files whose path contains this.")
def main(only: str) -> None:
    """Plant faults one by one and tell which tests die.  Exit status 1 if one survives."""
    survivors = 0
    with tempfile.TemporaryDirectory() as folder:
        checkout = Path(folder) / "checkout"
        shutil.copytree(ROOT, checkout, ignore=LEFT_OUT)
        for fault in (each for each in planted() if only in each.file):
            dying = fault.dying(checkout)
            survivors += not dying
            named = ", ".join(name.rpartition("/")[2] for name in dying)
            click.echo(f"{fault.file}: {fault.new}\n    {named or 'SURVIVES'}")
    sys.exit(survivors > 0)


if __name__ == "__main__":
    main()
