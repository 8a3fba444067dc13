"""Want of memory, told apart from other failures.

Decides what is said of it, and whether the kernel has ended a process for it.  Memory usually
limits the batch, and errors seldom say so.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ps_allreduce.tf_internals.texts import ALLOCATOR, OUT_OF_MEMORY, TENSOR

ADVICE = "use a smaller --batch-per-worker"


def explain_out_of_memory(text: str, task: str) -> str:
    """The sentence for an error that means want of memory; empty for any other.

    Args:
        text: of the error.
        task: in which it was raised; another task may be the one without memory.
    """
    if not OUT_OF_MEMORY.search(text):
        return ""
    tensor = TENSOR.search(text)
    wanted = f" (no room for a tensor {tensor[2]}{tensor[1]})" if tensor else ""
    return f"out of memory{_where(text, task)}{wanted}; {ADVICE}"


def _where(text: str, task: str) -> str:
    place = ALLOCATOR.search(text)
    if place is None:
        return ""
    job, index, kind, number = place.groups()
    device = f"GPU {number}" if kind == "GPU" else "the host"
    other = f"{job}:{index}"
    return f" on {device}" + ("" if job in (None, "localhost") or other == task else f" of {other}")


@dataclass(slots=True)
class KernelWatch:
    """Whether the kernel has ended processes for want of memory since the last look.

    Attributes:
        root: of the file system.
        before: how many processes it had ended at the last look.
    """

    root: Path = Path("/")
    before: int = 0

    def begin(self) -> None:
        """Look, and remember."""
        self.before = count_kills(self.root)

    @property
    def has_killed(self) -> bool:
        """It has ended one of our processes since; of this host's if control groups do not tell."""
        return count_kills(self.root) > self.before


def count_kills(root: Path) -> int:
    """How many processes the kernel has ended: of our control group, else of the host."""
    for path in _counters(root):
        try:
            text = path.read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue
        if count := re.search(r"^oom_kill (\d+)$", text, re.MULTILINE):
            return int(count[1])
    return 0


def _counters(root: Path) -> Iterator[Path]:
    """Files that count them: of our control groups, of either version, then of the host."""
    try:
        lines = (root / "proc/self/cgroup").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    groups = {kind: path.lstrip("/") for _, kind, path in (line.split(":", 2) for line in lines)}
    for kind, path in groups.items():
        if kind == "":
            yield root / "sys/fs/cgroup" / path / "memory.events"
        elif "memory" in kind.split(","):
            yield root / "sys/fs/cgroup/memory" / path / "memory.oom_control"
    yield root / "proc/vmstat"
