"""What this machine has, which is what every host is to have.

Decides that the environment of this process is the model for that of the hosts, at the same place,
and by which mark in its folders a host notices that they are this machine's own.
"""

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path

from launchers.hosts.commands import Goal, WantedEnvironment
from launchers.hosts.contents import read_checkout, read_wheelhouse
from launchers.processes import fork_server_environment
from ps_allreduce.environment import LOCK_STAMP, EnvironmentKind, environment_kind
from ps_allreduce.record.provenance import ROOT


def goal_here(python: str | None, wheelhouse: Path | None) -> Goal:
    """The checkout and the environment of this process.

    Args:
        python: command or path of the Python that makes environments on hosts; None: the one that
            made this process's environment if a host has it, else the first of the same version.

    Raises:
        UserError: a file cannot be copied, or the wheelhouse is none.
    """
    return Goal(
        root=ROOT,
        checkout=read_checkout(ROOT),
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
    marks = [goal.checkout.folder / goal.token, *filter(None, [goal.environment_token])]
    try:
        for mark in marks:
            with suppress(OSError):
                mark.touch()
        yield
    finally:
        for mark in marks:
            with suppress(OSError):
                mark.unlink(missing_ok=True)
