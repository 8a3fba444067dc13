"""From an experiment to running tasks and back.

`LAUNCHERS` names every way of running; a launcher is a sibling behind the `Launcher` protocol.
Launchers start the measured program as a program of its own and never import backends or
TensorFlow.
"""

from __future__ import annotations

from pathlib import Path

from launchers.local import LocalLauncher
from ps_allreduce.errors import UserError

LAUNCHERS = {"local": LocalLauncher}


def make_launcher(name: str, *, data_dir: Path, allow_login_node: bool) -> LocalLauncher:
    """Look a launcher up by its name.

    Raises:
        UserError: there is none of that name.
    """
    if name not in LAUNCHERS:
        raise UserError(f"unknown launcher {name!r}; choose one of {', '.join(LAUNCHERS)}.")
    return LAUNCHERS[name](data_dir, allow_login_node=allow_login_node)
