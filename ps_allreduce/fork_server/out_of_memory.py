"""Want of memory, told apart from other failures.

Decides which errors of TensorFlow mean it, and whether the kernel has ended a process for it.
Memory is the usual limit of a batch, and its errors seldom say so.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

#: The last three are what CUDA's libraries and a failed copy to a GPU say (tensorflow issue #7025).
SIGNS = re.compile(
    r"OOM when allocating|out of memory|failed to allocate memory|Unable to allocate|"
    r"_STATUS_ALLOC_FAILED|CUDA_ERROR_OUT_OF_MEMORY|Dst tensor is not initialized",
    re.IGNORECASE,
)

#: Where TensorFlow's allocators say that they failed; `localhost` is the process itself.
PLACE = re.compile(r"on (?:/job:(\w+)/replica:\d+/task:(\d+))?/device:(\w+):(\d+)")

TENSOR = re.compile(r"tensor with shape(\[[\d,]*\]) and type (\w+)")

ADVICE = "use a smaller --batch-per-worker"


def explain_out_of_memory(text: str, task: str) -> str:
    """The sentence for an error that means want of memory; empty for any other.

    Args:
        text: of the error.
        task: that it was raised in, which need not be the one that has no memory.
    """
    if not SIGNS.search(text):
        return ""
    tensor = TENSOR.search(text)
    wanted = f" (no room for a tensor {tensor[2]}{tensor[1]})" if tensor else ""
    return f"out of memory{_where(text, task)}{wanted}; {ADVICE}"


def _where(text: str, task: str) -> str:
    place = PLACE.search(text)
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
        before: how many it had ended then.
    """

    root: Path = Path("/")
    before: int = 0

    def begin(self) -> None:
        """Look, and remember."""
        self.before = count_kills(self.root)

    @property
    def has_killed(self) -> bool:
        """It has ended one of ours since, or of this host's where control groups do not tell."""
        return count_kills(self.root) > self.before


def count_kills(root: Path) -> int:
    """How many processes of our control group, else of the host, the kernel ended."""
    for path in _counters(root):
        try:
            text = path.read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue
        if found := re.search(r"^oom_kill (\d+)$", text, re.MULTILINE):
            return int(found[1])
    return 0


def _counters(root: Path) -> Iterator[Path]:
    """Files that count: of control groups of the second version, of the first, of the host."""
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
