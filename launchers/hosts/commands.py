"""What is run on a host, as lines for whatever shell the user has there.  Pure.

Decides that a checkout is unpacked beside the one in use and takes its place by renaming, that a
folder is ours to replace only if we made it, and that a set-up ends when the line to it is cut.
Every script is one line in quotes, since csh takes no more, and has no exclamation mark.  Values
are words of their own, never part of a script.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from launchers.hosts.goal import WORK, Goal
from launchers.sites.ssh.command_line import REACHED

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
