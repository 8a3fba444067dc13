"""What files of the kernel tell: their text, and what the control groups of this process allow it.

Decides that the tightest of all groups counts, in both versions of control groups, and how many
cores this process may use: `os.sched_getaffinity` knows nothing of a quota of processor time.  A
part of a core is none: tasks pinned to as many cores as the quota holds whole ones are never
stopped for it, and the rest is the launcher's.  On one core more the kernel would stop all of them
in every period until the next, in the middle of steps.

Sources: Linux, Documentation/admin-guide/cgroup-v2.rst (cpu.max, memory.max) and, for version 1,
Documentation/scheduler/sched-bwc.rst and Documentation/admin-guide/cgroup-v1/memory.rst.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path

#: The control groups of this process, and where they are mounted.
GROUPS = Path("/proc/self/cgroup"), Path("/sys/fs/cgroup")


def read_text(path: Path) -> str:
    """What is in a file; empty if it cannot be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def usable_cores() -> tuple[int, ...]:
    """Numbers of the cores that this process may use, no more than its quota holds whole ones."""
    allowed = sorted(os.sched_getaffinity(0))
    quota = processor_quota(*GROUPS)
    return tuple(allowed if quota is None else allowed[: max(1, int(quota))])


@cache  # a sample of every half second asks, and a run has what it began with
def processor_quota(groups: Path, root: Path) -> float | None:
    """How many processors' time the control groups of this process allow it; None without a limit.

    Args:
        groups: the list of them, as /proc/self/cgroup.
        root: where they are mounted.
    """
    quotas = []
    for folder in _folders("cpu", groups, root):
        older = [read_text(folder / f"cpu.cfs_{name}_us") for name in ("quota", "period")]
        words = (read_text(folder / "cpu.max") or " ".join(older)).split()
        if len(words) == 2 and all(word.isdecimal() for word in words):
            quotas.append(int(words[0]) / int(words[1]))
    return min(quotas, default=None)


def quota_text(quota: float | None) -> str:
    """Why there may be fewer usable cores, to be put behind their number; empty without a quota."""
    return "" if quota is None else f" (control groups allow the time of {quota:g})"


def memory_limits(groups: Path, root: Path) -> list[int]:
    """Bytes of memory that the control groups of this process allow it, of each that says so.

    Args:
        groups: the list of them, as /proc/self/cgroup.
        root: where they are mounted.
    """
    names = ("memory.max", "memory.limit_in_bytes")
    folders = _folders("memory", groups, root)
    texts = [read_text(folder / name).strip() for folder in folders for name in names]
    return [int(text) for text in texts if text.isdecimal()]


def _folders(controller: str, groups: Path, root: Path) -> Iterator[Path]:
    """Of the control groups of this process that may limit it, each with those that contain it."""
    for line in read_text(groups).splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        top = root / controller if controllers else root
        inner = top / path.lstrip("/")
        yield from (folder for folder in (inner, *inner.parents) if folder.is_relative_to(top))
