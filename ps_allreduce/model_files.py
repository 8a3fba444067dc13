"""Copies of the files that a user's own model is made of, from which every task builds it.

Decides the digest that names the folder of the copies, which names of files are allowed in it, and
that the folder is there with all of them or not at all.  Which files these are is found out by
`inspection.model_facts`; how they get onto other hosts is decided in
`launchers.fork_servers.host_servers`.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath

from ps_allreduce.errors import UserError
from ps_allreduce.scratch import open_regular, scratch_folder
from ps_allreduce.serialization import parse_json

#: Of all files together: they are sent to every host.
MOST_BYTES = 2 * 10**9

#: Lists the other files of a folder of copies: tasks leave files of their own beside them.
MANIFEST = "files.json"

PIECE_BYTES = 1 << 20

DIGEST = re.compile("[0-9a-f]{16}")


def models_in(data_dir: Path) -> Path:
    """Where the copies of all models lie on a host."""
    return data_dir / "models"


def is_inside(name: str) -> bool:
    """A name is that of a file below a folder, written in the one way in which it is written."""
    path = PurePosixPath(name)
    plain = str(path) == name and "\0" not in name
    return plain and name != "." and not path.is_absolute() and ".." not in path.parts


def pieces_of(path: Path) -> Iterator[bytes]:
    """The content of a file, piece by piece.

    Raises:
        OSError: it cannot be read.
    """
    with open_regular(path) as stream:
        while piece := stream.read(PIECE_BYTES):
            yield piece


def digest_of(folder: Path, names: Sequence[str]) -> str:
    """Sixteen hexadecimal digits over names, sizes and contents of files below a folder.

    Raises:
        OSError: one cannot be read.
    """
    total = hashlib.sha256()
    for name in sorted(names):
        path = folder / name
        total.update(os.fsencode(name) + f"\0{path.stat().st_size}\0".encode())
        for piece in pieces_of(path):
            total.update(piece)
    return total.hexdigest()[:16]


def names_in(folder: Path) -> tuple[str, ...]:
    """The files of a folder of copies, as its manifest lists them.

    Raises:
        OSError: there is no manifest.
        ValueError: it is damaged.
    """
    with open_regular(folder / MANIFEST) as stream:
        names = parse_json(stream.read())
    if not isinstance(names, list) or not all(isinstance(n, str) and is_inside(n) for n in names):
        raise ValueError(f"{MANIFEST} is no list of names")
    return tuple(names)


def is_whole(folder: Path, digest: str) -> bool:
    """All copies are in a folder, and are what their digest says."""
    try:
        return digest_of(folder, names_in(folder)) == digest
    except (OSError, ValueError):
        return False


def give_name(arrived: Path, folder: Path) -> None:
    """Let a folder of copies appear under its name, unless there is such a one that is whole.

    What stands there and is damaged gives way.

    Raises:
        OSError: no permission, or somebody else puts something else there at this moment.
    """
    if is_whole(folder, folder.name):
        return
    with scratch_folder(folder.parent) as aside:
        if os.path.lexists(folder):
            folder.rename(aside / folder.name)
        try:
            arrived.rename(folder)
        except OSError:
            if not is_whole(folder, folder.name):  # by whoever did the same
                raise


def copy_files(root: Path, names: Sequence[str], data_dir: Path) -> str:
    """Copy files below `root` to where tasks look for them; their digest.

    Whatever changes in `root` meanwhile, the digest is that of the copies.

    Raises:
        UserError: a file cannot be read, they are too large, or the disk refuses.
        HostFault: no folder can be made.
    """
    _check(root, names)
    models = models_in(data_dir)
    try:
        models.mkdir(parents=True, exist_ok=True)
        with scratch_folder(models) as arrived:
            _copy(root, names, arrived)
            (arrived / MANIFEST).write_text(json.dumps(sorted(names)), encoding="utf-8")
            digest = digest_of(arrived, names)
            give_name(arrived, models / digest)
    except OSError as error:
        raise UserError(f"cannot copy the model to {models}: {error.strerror or error}.") from error
    return digest


def _check(root: Path, names: Sequence[str]) -> None:
    for name in names:
        if not is_inside(name) or name == MANIFEST:
            raise UserError(f"the model's file {name!r} does not lie below {root}.")


def _copy(root: Path, names: Sequence[str], target: Path) -> None:
    """Copy files piece by piece: one that grows meanwhile fills no disk."""
    left = MOST_BYTES
    for name in names:
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        with (target / name).open("xb") as stream:
            for piece in _readable(root / name):
                left -= len(piece)
                if left < 0:
                    raise UserError(
                        f"the model's files have more than {MOST_BYTES / 1e9:g} GB together, the "
                        f"last one {name}, and every host gets a copy: keep data out of them."
                    )
                stream.write(piece)


def _readable(path: Path) -> Iterator[bytes]:
    try:
        yield from pieces_of(path)
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror or error}.") from error
