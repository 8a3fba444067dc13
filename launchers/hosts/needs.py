"""What a host lacks, which steps that takes, and what is said of one that cannot have it.  Pure.

Decides that a folder which somebody else made is left alone, that an environment which this machine
uses as well is never made from another one, and that hosts with one folder take turns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from launchers.hosts.commands import FOUND
from launchers.hosts.goal import Goal
from launchers.sites.ssh.command_line import REACHED, explain_loss, explain_no_start, last_heard
from launchers.sites.ssh.hostfile import SshHost
from ps_allreduce.errors import HostFault

#: Status of ssh itself.
LINE_LOST = 255


class FilesThere(StrEnum):
    """What a host has at the checkout's place."""

    SHARED = "shared"  # this machine's own folder
    SAME = "same"
    OTHER = "other"  # an earlier copy, or a part of one
    NONE = "none"
    FOREIGN = "foreign"  # somebody else made it, and it differs
    LOCKED = "locked"  # nothing can be written there


class EnvironmentThere(StrEnum):
    """What a host has at the environment's place."""

    NONE = "none"  # or another one
    MADE = "made"  # it bears the right mark
    READY = "ready"  # it was asked, and holds what it should


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundThere:
    """What a look at a host has shown.

    Attributes:
        shares_environment: it is the one of this machine.
        has_wheels: the packages to install are there.
        sees: numbers of the hosts that have the same folder, as far as this one knows.
    """

    files: FilesThere
    environment: EnvironmentThere
    shares_environment: bool = False
    has_wheels: bool = False
    sees: frozenset[int] = frozenset()

    @property
    def is_ready(self) -> bool:
        """Nothing is missing."""
        has_files = self.files in (FilesThere.SHARED, FilesThere.SAME)
        return has_files and self.environment is EnvironmentThere.READY


class Step(StrEnum):
    """What is done for a host, in this order; named as it is shown."""

    COPY = "copying the checkout"
    COPY_WHEELS = "copying the wheelhouse"
    SET_UP = "setting up the environment"
    CHECK = "checking the environment"


def parse_found(said: str) -> FoundThere | None:
    """Read the answer of a host among all that it said; None if it is not there."""
    lines = [line for line in said.splitlines() if line.startswith(FOUND)]
    if not lines:
        return None
    files, environment, place, stock, *sees = lines[-1].removeprefix(FOUND).split()
    return FoundThere(
        files=FilesThere(files),
        environment=EnvironmentThere(environment),
        shares_environment=place == "shared",
        has_wheels=stock == "full",
        sees=frozenset(map(int, sees)),
    )


def steps_for(host: str, found: FoundThere, goal: Goal) -> tuple[Step, ...]:
    """What has to be done for a host.

    Raises:
        HostFault: nothing may be done there.
    """
    if found.is_ready:
        return ()
    _refuse(host, found, goal)
    in_place = found.files in (FilesThere.SHARED, FilesThere.SAME)
    copy = () if in_place else (Step.COPY,)
    if found.shares_environment:
        return (*copy, Step.CHECK)
    installs = goal.wheelhouse is not None and goal.environment.folder is not None
    lacks_wheels = found.environment is EnvironmentThere.NONE and not found.has_wheels
    wheels = (Step.COPY_WHEELS,) if installs and lacks_wheels else ()
    return (*copy, *wheels, Step.SET_UP)


def _refuse(host: str, found: FoundThere, goal: Goal) -> None:
    if found.files is FilesThere.LOCKED:
        raise HostFault(
            f"{host} does not let you make or write {goal.root}: use a checkout at a path that you "
            "may write on every host."
        )
    if found.files is FilesThere.FOREIGN:
        raise HostFault(
            f"{host} has files at {goal.root} that 'make hosts' did not put there and that differ "
            "from the ones here; they are left alone: move them away, or make them the same."
        )
    if found.shares_environment and found.environment is EnvironmentThere.NONE:
        raise HostFault(
            f"{host} shares the environment {goal.environment.folder} with this machine, but "
            f"cannot start its Python: install there what {goal.environment.base} is here."
        )


def groups_of(found: Mapping[int, FoundThere]) -> tuple[tuple[int, ...], ...]:
    """Hosts by their numbers; those that share a folder are together, in their order.

    Of two that share one, at least the one that looked later has seen the other.
    """
    groups: list[set[int]] = []
    for number, each in found.items():
        group = {number, *each.sees}
        for other in [other for other in groups if other & group]:
            groups.remove(other)
            group |= other
        groups.append(group)
    return tuple(tuple(sorted(group & set(found))) for group in groups)


def explain_failure(host: SshHost, step: str, status: int, said: str) -> str:
    """Why a step failed, in a sentence.

    Args:
        step: what was being done.
        status: that ssh ended with.
        said: by ssh and on the host.
    """
    if REACHED not in said:
        return f"{explain_no_start(host, status, '', said)}."
    heard = "\n".join(told_lines(said))
    if status == LINE_LOST:
        return f"{explain_loss(host.name, status, heard)}, while {step}."
    return f"{step} failed on {host.name} with status {status} {last_heard(heard)}."


def told_lines(said: str) -> Sequence[str]:
    """What was said by others than us."""
    told = (line for line in said.splitlines() if line.strip() and not line.startswith(FOUND))
    return [line for line in told if not line.endswith(REACHED)]  # a greeting may precede it
