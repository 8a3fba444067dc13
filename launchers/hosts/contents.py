"""What is copied to hosts: the checkout, and the packages to install where there is no internet.

Decides which files make up a checkout, how they are identified, and that they travel as one tar.
What stands beside them here (the environment, results, files of git) stays here.  git is not asked:
a module that was just written and not yet added counts as it does for the program that is measured.
"""

from __future__ import annotations

import hashlib
import io
import tarfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from ps_allreduce.errors import UserError

#: The checkout, as it stands in its folder.
PARTS = (
    *("LICENSE", "Makefile", "README.md", "analysis", "docs", "experiments", "launchers"),
    *("ps_allreduce", "pyproject.toml", "requirements", "tests"),
)

#: Comes last in every archive: without it, the archive was cut.
COMPLETE = ".complete"


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkout:
    """The files of a checkout.

    Attributes:
        digests: SHA-256 in hexadecimal, by the file's name below the folder.
    """

    folder: Path
    digests: Mapping[str, str]

    def __post_init__(self) -> None:
        for name in self.digests:
            if "\n" in name or "\\" in name:
                raise UserError(f"{name!r} in {self.folder} cannot be copied; rename the file.")

    @property
    def parts(self) -> tuple[str, ...]:
        """What stands in the folder itself."""
        return tuple(sorted({name.split("/")[0] for name in self.digests}))

    @property
    def manifest(self) -> str:
        """As `sha256sum` writes it and checks it."""
        return "".join(f"{digest}  {name}\n" for name, digest in sorted(self.digests.items()))

    def pack(self, sink: io.BufferedIOBase) -> None:
        """Write the files as a tar."""
        _pack(sink, self.folder, sorted(self.digests), self.manifest)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wheelhouse:
    """Packages to install from.

    Attributes:
        sizes: bytes, by the name of the file.
    """

    folder: Path
    sizes: Mapping[str, int]

    def __post_init__(self) -> None:
        if not self.sizes:
            raise UserError(
                f"{self.folder} holds no packages (*.whl); fill it with "
                f"'make wheelhouse WHEELHOUSE={self.folder}' on a machine that has internet."
            )

    @property
    def name(self) -> str:
        """Of its copy on a host.  Names and sizes tell them apart; pip checks what is in them."""
        listed = repr(sorted(self.sizes.items()))
        return f"wheels-{hashlib.sha256(listed.encode()).hexdigest()[:16]}"

    def pack(self, sink: io.BufferedIOBase) -> None:
        """Write the packages as a tar."""
        _pack(sink, self.folder, sorted(self.sizes), "")


def read_checkout(folder: Path) -> Checkout:
    """The files of the checkout as they are now."""
    tops = (folder / part for part in PARTS)
    paths = [path for top in tops for path in ([top] if top.is_file() else top.rglob("*"))]
    digests = {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in paths
        if path.is_file() and "__pycache__" not in path.parts
    }
    return Checkout(folder=folder, digests=digests)


def read_wheelhouse(folder: Path) -> Wheelhouse:
    """The packages in a folder.

    Raises:
        UserError: there are none.
    """
    kinds = ("*.whl", "horovod-*.tar.gz")
    packages = (path for kind in kinds for path in folder.glob(kind) if path.is_file())
    return Wheelhouse(folder=folder, sizes={path.name: path.stat().st_size for path in packages})


def _pack(sink: io.BufferedIOBase, folder: Path, names: Iterable[str], completes: str) -> None:
    complete = completes.encode()
    with tarfile.open(
        mode="w|", fileobj=sink, format=tarfile.GNU_FORMAT, dereference=True, bufsize=2**20
    ) as archive:
        for name in names:
            archive.add(folder / name, name, recursive=False, filter=_anonymous)
        last = tarfile.TarInfo(COMPLETE)
        last.size = len(complete)
        archive.addfile(last, io.BytesIO(complete))


def _anonymous(file: tarfile.TarInfo) -> tarfile.TarInfo:
    """Without its owner here, whom the host may not know."""
    file.uid = file.gid = 0
    file.uname = file.gname = ""
    return file
