"""What a host lacks, which steps that takes, and what is run there for each of them.  Pure.

Decides that a folder which somebody else made is left alone, that an environment which this machine
uses as well is never made from another one, that hosts with one folder take turns, and what is said
of a host that cannot have what it lacks.

What is run are lines for whatever shell the user has there: one line in quotes, since csh takes no
more, and without an exclamation mark.  Values are words of their own, never part of a script.  A
checkout is unpacked beside the one in use and takes its place by renaming, and a set-up ends when
the line to it is cut.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from launchers.hosts.goal import WORK, Goal
from launchers.sites.ssh.command_line import REACHED, explain_loss, explain_no_start, last_heard
from launchers.sites.ssh.hostfile import SshHost
from ps_allreduce.errors import HostFault

#: Begins the line that tells what was found.
FOUND = "ps-allreduce: found"

_BEGIN = ("exec 1>&2", f"echo '{REACHED}'")

_LOOK = (
    *_BEGIN,
    "root=$1 token=$2 venv_token=$3 call=$4 number=$5 stamp=$6 python=$7 path=$8 wheels=$9",
    "shift 9",
    "copy=$(mktemp -d) || exit",
    "trap 'rm -rf \"$copy\"' EXIT",
    'tar -x -z -o -f - -C "$copy" || exit',
    'is_same() { for part; do diff -r -q -x __pycache__ "$copy/$part" "$root/$part" || return; '
    "done >/dev/null 2>&1; }",
    f"work=$root/{WORK}; calls=$work/calls/$call",
    'if [ -e "$root/$token" ]; then files=shared; elif is_same "$@"; then files=same; '
    'elif [ -e "$work/made-here" ]; then files=other; '
    # Another host with this folder may be making the mark right now.
    f'elif [ -z "$(ls -A "$root" 2>/dev/null | grep -vxF {WORK})" ]; then files=none; '
    "else files=foreign; fi",
    'case $files in none|other) mkdir -p "$calls" && touch "$work/made-here" "$calls/$number" '
    "|| files=locked;; esac",
    'if [ -e "$venv_token" ]; then place=shared; else place=separate; fi',
    'environment=none; if [ -x "$python" ] && { [ -z "$stamp" ] || printf "%s\\n" "$stamp" | '
    "sha256sum -c >/dev/null 2>&1; }; then environment=made; fi",
    "case $files-$environment in shared-made|same-made) "
    'if cd "$root" && env PYTHONPATH="$path" "$python" -m ps_allreduce.environment; '
    "then environment=ready; fi;; esac",
    'if [ -n "$wheels" ] && [ -e "$work/$wheels" ]; then stock=full; else stock=empty; fi',
    f'echo "{FOUND} $files $environment $place $stock" $(ls "$calls" 2>/dev/null)',
)

_COPY = (
    *_BEGIN,
    "set -eu",
    'cd "$1"',
    "rm -rf new old",
    "mkdir new old",
    "tar -x -z -o -f - -C new",
    'for name in new/*; do part=${name#new/}; if [ -e "../$part" ]; then mv "../$part" old/; fi; '
    'mv "$name" ..; done',
    "rm -rf new old",
)

#: Hosts that share a folder may do this at once; the first that is ready counts.
_COPY_WHEELS = (
    *_BEGIN,
    "set -eu",
    'mkdir -p "$1"; cd "$1"',
    'rm -rf "$2.$3"; mkdir "$2.$3"',
    'tar -x -z -o -f - -C "$2.$3"',
    'if [ -e "$2" ]; then rm -rf "$2.$3"; else mv "$2.$3" "$2"; fi',
)

#: Its standard input says nothing: its end is the end of the line.  Then all that runs here ends,
#: as sshd starts every command in a process group of its own; pip first gets the chance to tidy up.
_SET_UP = (
    "exec 3<&0 0</dev/null",
    *_BEGIN,
    "{ cat <&3; kill -INT 0; sleep 2; kill -KILL 0; } >/dev/null 2>&1 & exec 3<&-",
    "root=$1 python=$2 path=$3 base=$4 command=$5",
    "shift 5",
    'cd "$root" || exit',
    'if [ -x "$base" ]; then command=$base; fi',
    'if [ "$#" -gt 0 ]; then '
    'env "$@" PYTHON="$command" sh requirements/set_up.sh environment || exit; fi',
    'env PYTHONPATH="$path" "$python" -m ps_allreduce.environment || exit',
    f"rm -rf {WORK}/wheels-* {WORK}/calls",
)


def _command(script: Sequence[str], *values: str) -> str:
    return f"exec {shlex.join(['sh', '-c', '; '.join(script), 'sh', *values])}"


def look_command(goal: Goal, number: int) -> str:
    """See what a host has; it compares an archive with that, and answers with a line.

    Args:
        number: of the host, by which hosts that share a folder find each other.
    """
    wanted = goal.environment
    return _command(
        _LOOK,
        *(str(goal.root), goal.token, str(goal.environment_token or ""), goal.call, str(number)),
        *(wanted.stamp, wanted.python, wanted.python_path),
        "" if goal.wheelhouse is None else goal.wheelhouse.name,
        *goal.parts,
    )


def copy_command(goal: Goal) -> str:
    """Put the checkout of an archive in its place."""
    return _command(_COPY, str(goal.root / WORK))


def copy_wheels_command(goal: Goal, number: int) -> str:
    """Put the packages of an archive in their place.

    Args:
        number: of the host.
    """
    assert goal.wheelhouse is not None
    return _command(_COPY_WHEELS, str(goal.root / WORK), goal.wheelhouse.name, str(number))


def set_up_command(goal: Goal, *, only_check: bool) -> str:
    """Make the environment, and see that it holds what it should."""
    wanted = goal.environment
    packages = "" if goal.wheelhouse is None else str(goal.root / WORK / goal.wheelhouse.name)
    variables = () if only_check else wanted.variables(packages)
    places = (str(goal.root), wanted.python, wanted.python_path, wanted.base, wanted.command)
    return _command(_SET_UP, *places, *variables)


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
