"""What launcher and fork server say to each other about files.

Both are served by the fork server itself, without a process: what a run left is read, and the
copies of a user's own model are written where a host has none.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadFile:
    """Read a piece of a file that a run left."""

    path: str
    offset: int
    length: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FileRead:
    """The piece, in Base64; `size` is that of the whole file, None if there is no such file."""

    content: str = ""
    size: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SeekCopies:
    """Ask whether this host has the copies of a user's own model below a data folder."""

    data_dir: str
    digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PutFile:
    """Write a piece of one of these copies.

    Attributes:
        path: of the file, below the folder of the copies.
        offset: bytes of the file that were sent before.
        content: in Base64.
        last: nothing else follows, so the folder may appear under its name, the digest.
    """

    data_dir: str
    digest: str
    path: str
    offset: int
    content: str
    last: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class CopiesSeen:
    """The answer to both.

    Attributes:
        whole: the folder is there, and its digest is right.
        problem: why a piece could not be written; empty if it could.
    """

    whole: bool = False
    problem: str = ""
