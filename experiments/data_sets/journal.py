"""What a conversion has finished, for the same command to go on with.

Decides the form of `conversion.json` and which folder a conversion may write into.  A split stands
in a folder `<split>.unfinished` until all of its files have been verified, so nobody trains with a
part of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Lock

from experiments.sweep.folder import locked
from ps_allreduce.errors import RecordFormatError, UserError
from ps_allreduce.point.inputs.data_set import FileOfRecords
from ps_allreduce.record.files import read_json, write_json
from ps_allreduce.serialization import from_json

JOURNAL = "conversion.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversion:
    """What `conversion.json` holds.

    Attributes:
        version: of this form, and of the files.
        layout, source: as they were asked for; the source may move.
        examples: how many are converted, of all splits.
        identity: of what is converted (`plan.identity`).
        files: those that are finished, by split and name.
    """

    version: int = 1
    layout: str
    source: str
    examples: int
    identity: str
    files: Mapping[str, FileOfRecords] = field(default_factory=dict)


class Journal:
    """The folder of a conversion, and what is finished in it.  Threads may share it."""

    def __init__(self, out: Path, content: Conversion) -> None:
        self._out, self._content = out, content
        self._lock = Lock()

    @property
    def files(self) -> Mapping[str, FileOfRecords]:
        """The finished ones, by split and name."""
        return self._content.files

    def add(self, key: str, made: FileOfRecords) -> None:
        """A file is finished.

        Raises:
            UserError: the journal cannot be written.
        """
        with self._lock:
            self._write({**self.files, key: made})

    def drop(self, keys: set[str]) -> None:
        """Some files have to be written again.

        Raises:
            UserError: the journal cannot be written.
        """
        with self._lock:
            self._write({key: made for key, made in self.files.items() if key not in keys})

    def _write(self, files: Mapping[str, FileOfRecords]) -> None:
        content = replace(self._content, files=files)
        write_json(self._out / JOURNAL, content)
        self._content = content

    def folder(self, split: str) -> Path:
        """Where the files of a split are now."""
        finished = self._out / split
        return finished if finished.is_dir() else self._out / f"{split}.unfinished"

    def finish(self, split: str) -> None:
        """Give a split its name.

        Raises:
            UserError: the system refuses.
        """
        folder = self.folder(split)
        try:
            for left_over in folder.glob(".*.partial"):
                left_over.unlink()
            folder.rename(self._out / split)
        except OSError as error:
            raise UserError(f"cannot rename {folder}: {error.strerror}.") from error


@contextmanager
def opened(out: Path, asked: Conversion) -> Iterator[Journal]:
    """The journal of a new conversion, or of the one that was begun in a folder.

    Raises:
        UserError: the folder holds something else, or another conversion writes into it.
    """
    with locked(out, f"another conversion writes into {out}: wait for it, or end it."):
        found = _read(out)
        if found is not None:
            _check_same(out, found, asked)
        journal = Journal(out, found or asked)
        if found is None:
            write_json(out / JOURNAL, asked)
        yield journal


def _read(out: Path) -> Conversion | None:
    path = out / JOURNAL
    try:
        return from_json(Conversion, read_json(path))
    except FileNotFoundError:
        if others := sorted(each.name for each in out.iterdir() if not each.name.startswith(".")):
            raise UserError(
                f"{out} holds {others[0]} and no {JOURNAL}: no conversion has made it. Choose "
                "another folder."
            ) from None
        return None
    except (OSError, ValueError, RecordFormatError) as error:
        raise UserError(
            f"{path} cannot be read ({error}): choose another folder, or take {out} away."
        ) from error


def _check_same(out: Path, found: Conversion, asked: Conversion) -> None:
    if found.layout != asked.layout:
        raise UserError(
            f"{out} holds a conversion of the layout {found.layout}, and not {asked.layout}: "
            "choose another folder, or take it away."
        )
    if found.identity != asked.identity or found.version != asked.version:
        raise UserError(
            f"{out} holds a conversion of {found.examples} examples of {found.source}, and "
            f"{asked.source} holds others now ({asked.examples}; names or labels differ): choose "
            "another folder, or take it away."
        )
