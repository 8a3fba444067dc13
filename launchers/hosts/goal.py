"""What every host is to have, which is what this machine has.

Decides which files make up a checkout, that the environment of this process is the model for that
of the hosts, at the same place, and by which mark in its folders a host notices that they are this
machine's own.  What stands beside the checkout's files (the environment, results, files of git)
stays here.  git is not asked: a module that was just written and not yet added counts as it does
for the program that is measured.
"""

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from launchers.processes import fork_server_environment
from ps_allreduce.environment import LOCK_STAMP, EnvironmentKind, environment_kind
from ps_allreduce.errors import UserError
from ps_allreduce.record.provenance import ROOT

#: The checkout, as it stands in its folder.
PARTS = (
    *("CHANGELOG.md", "CITATION.cff", "CONTRIBUTING.md", "LICENSE", "Makefile", "README.md"),
    *("analysis", "docs", "experiments", "launchers", "ps_allreduce", "pyproject.toml"),
    *("requirements", "tests"),
)

#: In the checkout on a host: what is being unpacked, packages to install, marks.
WORK = ".ps-allreduce-hosts"


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
        return f"wheels-{sha256(listed.encode()).hexdigest()[:16]}"

    @property
    def pack_words(self) -> tuple[str, ...]:
        """The command that writes them as an archive."""
        return _pack_words(self.folder, sorted(self.sizes))


def read_wheelhouse(folder: Path) -> Wheelhouse:
    """The packages in a folder.

    Raises:
        UserError: there are none.
    """
    kinds = ("*.whl", "horovod-*.tar.gz")
    packages = (path for kind in kinds for path in folder.glob(kind) if path.is_file())
    return Wheelhouse(folder=folder, sizes={path.name: path.stat().st_size for path in packages})


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedEnvironment:
    """The environment that every host is to have at the same place.

    Attributes:
        python: path of its interpreter.
        python_path: PYTHONPATH of the suite.
        folder: what `requirements/set_up.sh` fills; None for an environment that somebody else
            keeps, which is only checked.
        build: of TensorFlow.
        with_horovod: whether Horovod is built there.
        stamp: how `sha256sum` writes the mark of the finished environment; empty without one.
        base: path of the Python to make it with where the host has that.
        command: the Python to make it with elsewhere.
    """

    python: str
    python_path: str
    folder: Path | None = None
    build: str = ""
    with_horovod: bool = False
    stamp: str = ""
    base: str = ""
    command: str

    def variables(self, wheelhouse: str) -> tuple[str, ...]:
        """What `requirements/set_up.sh` is told, but for the Python to use."""
        if self.folder is None:
            return ("ENV=existing",)
        # The script tells pip to be quiet; "verbose" makes up for it, as silence means trouble.
        held = (f"TF={self.build}", f"HOROVOD={int(self.with_horovod)}")
        return (f"VENV={self.folder}", *held, f"WHEELHOUSE={wheelhouse}", "PIP_VERBOSE=1")


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """What every host is to have.

    Attributes:
        root: folder of the checkout on the hosts.
        folder: of the checkout here.
        call: a name for this call that no other has.
    """

    root: Path
    folder: Path
    environment: WantedEnvironment
    wheelhouse: Wheelhouse | None = None
    call: str

    @property
    def parts(self) -> tuple[str, ...]:
        """The files and folders that are copied."""
        return tuple(part for part in PARTS if (self.folder / part).exists())

    @property
    def pack_words(self) -> tuple[str, ...]:
        """The command that writes the checkout as an archive, as it is now."""
        return _pack_words(self.folder, self.parts)

    @property
    def token(self) -> str:
        """Name of a file that is in this machine's folders while we are at work."""
        return f"{WORK}-{self.call}"

    @property
    def environment_token(self) -> Path | None:
        """That file in this machine's environment."""
        folder = self.environment.folder
        return None if folder is None else folder / self.token


def _pack_words(folder: Path, names: Iterable[str]) -> tuple[str, ...]:
    """Compressed, as the end of such an archive tells whether it was cut."""
    how = ("--dereference", "--exclude=__pycache__", "--use-compress-program=gzip -1")
    return ("tar", "-c", "-f", "-", *how, "-C", str(folder), "--", *names)


def goal_here(python: str | None, wheelhouse: Path | None) -> Goal:
    """The checkout and the environment of this process.

    Args:
        python: command or path of the Python that makes environments on hosts; None: the one that
            made this process's environment if a host has it, else the first of the same version.

    Raises:
        UserError: the wheelhouse is none.
    """
    return Goal(
        root=ROOT,
        folder=ROOT,
        environment=_environment_here(python),
        wheelhouse=None if wheelhouse is None else read_wheelhouse(wheelhouse),
        call=secrets.token_hex(8),
    )


def _environment_here(python: str | None) -> WantedEnvironment:
    given = {name: os.environ[name] for name in ("PYTHONPATH",) if name in os.environ}
    python_path = fork_server_environment(given)["PYTHONPATH"]
    if environment_kind() is EnvironmentKind.EXISTING:
        return WantedEnvironment(
            python=sys.executable, python_path=python_path, command=sys.executable
        )
    stamp = Path(sys.prefix) / LOCK_STAMP
    content = stamp.read_bytes()
    # "# cpu build, Python 3.11" or "# cpu build, Python 3.11 with Horovod", and then what is locked
    first_line = content.decode().splitlines()[0]
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    return WantedEnvironment(
        python=sys.executable,
        python_path=python_path,
        folder=Path(sys.prefix),
        build=first_line.split()[1],
        with_horovod=first_line.endswith(" with Horovod"),
        stamp=f"{sha256(content).hexdigest()}  {stamp}",
        base="" if python else str(Path(sys.base_prefix) / "bin" / version),
        command=python or version,
    )


@contextmanager
def marked(goal: Goal) -> Iterator[None]:
    """This machine's folders bear a mark for as long as the context lasts, if they can be written.

    Where they cannot, nothing of them can be replaced either.
    """
    marks = [goal.folder / goal.token, *filter(None, [goal.environment_token])]
    try:
        for mark in marks:
            with suppress(OSError):
                mark.touch()
        yield
    finally:
        for mark in marks:
            with suppress(OSError):
                mark.unlink(missing_ok=True)
