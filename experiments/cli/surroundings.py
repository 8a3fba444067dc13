"""What commands take from the world around them: launchers, and the state of the source.

The one place where tests put something else.
"""

from __future__ import annotations

from pathlib import Path

from experiments.sweep.source_state import source_state
from launchers import make_launcher
from launchers.run.launcher import HostsLauncher
from launchers.settings import LauncherSettings


def launcher_of(settings: LauncherSettings) -> HostsLauncher:
    """The launcher that was asked for.

    Raises:
        UserError: a setting does not belong to it.
    """
    return make_launcher(settings)


def this_machine(results: Path) -> HostsLauncher:
    """A launcher to ask about models and images, wherever runs are made."""
    return make_launcher(LauncherSettings(results=results, allow_login_node=True))


def commit() -> str:
    """The state of the suite's source, under which runs are recorded."""
    return source_state()
