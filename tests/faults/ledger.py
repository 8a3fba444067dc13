"""Remember every file of a run that was ever complete, and tell what became of it since."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.faults.ground import Ground

ENDINGS = (".json", ".npz", ".log")


@dataclass(slots=True)
class Ledger:
    """What was seen.

    Attributes:
        digests: of the files of complete runs, as they were first seen.
        damaged: files that a fault has damaged.
    """

    digests: dict[Path, str] = field(default_factory=dict)
    damaged: set[Path] = field(default_factory=set)

    def forget(self, paths: Iterable[Path]) -> None:
        """A fault has deleted these, or their folders; runs may be made anew in their place."""
        for gone in paths:
            run = {gone, *(gone.with_suffix(ending) for ending in ENDINGS)}
            self.digests = {
                path: digest
                for path, digest in self.digests.items()
                if run.isdisjoint((path, *path.parents))
            }

    def distrust(self, paths: Iterable[Path]) -> None:
        """A fault has damaged these: whatever lies in their place, nothing is said of it."""
        paths = list(paths)
        self.forget(paths)
        self.damaged.update(paths)

    def look(self, ground: Ground) -> None:
        """Remember runs that are complete now: their record is there."""
        for record in ground.records():
            files = [record.with_suffix(ending) for ending in ENDINGS]
            if record not in self.digests and self.damaged.isdisjoint(files):
                found = {path: digest_of(path) for path in files}
                self.digests |= {path: digest for path, digest in found.items() if digest}

    def compare(self) -> list[str]:
        """What was lost or changed since it was remembered."""
        return changes(self.digests, {path: digest_of(path) for path in self.digests})


def digest_of(path: Path) -> str | None:
    """Of a file; None if it is not there, or no file."""
    if not path.is_file():
        return None
    return hashlib.sha256(path.read_bytes()).hexdigest()


def changes(before: Mapping[Path, str], after: Mapping[Path, str | None]) -> list[str]:
    """A line for every file that is gone or different."""
    gone = [f"lost: {path.name} of {path.parent.name}" for path in before if after[path] is None]
    other = [
        f"changed: {path.name} of {path.parent.name}"
        for path, digest in before.items()
        if after[path] not in (None, digest)
    ]
    return gone + other
