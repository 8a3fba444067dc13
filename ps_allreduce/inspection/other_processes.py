"""What processes of others use of this machine's processors.

Decides who the others are.  The kernel knows exactly how long each process ran.  How long
processors were not idle tells less: they also serve interrupts, of the network above all.
"""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ps_allreduce.record.provenance import read_text

#: Looks may take so much of one processor's time.
COST_LIMIT = 0.001

TICKS_PER_S = os.sysconf("SC_CLK_TCK")


@dataclass(slots=True)
class OtherProcesses:
    """Looks at the processes of others, as often as it may cost.

    Attributes:
        fork_servers: of all hosts on this machine, by their process numbers; empty where another
            one of these looks.
        proc: where the kernel tells of processes.
        used_s: by others since the first look.
        last_s: what they had used at the last look; None before the first.
        next_look: not before, in seconds of the monotonic clock.
    """

    fork_servers: Collection[int] = ()
    proc: Path = Path("/proc")
    used_s: float = 0.0
    last_s: float | None = None
    next_look: float = 0.0

    def look(self) -> float | None:
        """Processor seconds since the first look; None if there was no look, or it tells nothing.

        It tells nothing where processes may be hidden, as in a container, or use other processors
        than this one may.
        """
        in_part = len(os.sched_getaffinity(0)) < (os.cpu_count() or 1)
        if not self.fork_servers or in_part or time.monotonic() < self.next_look:
            return None
        begin = time.thread_time()
        now_s = others_s(self.proc, self.fork_servers)
        self.next_look = time.monotonic() + (time.thread_time() - begin) / COST_LIMIT
        if now_s is None:
            return None
        # The sum only falls if a process has ended that nobody waited for.
        self.used_s += max(0.0, now_s - (now_s if self.last_s is None else self.last_s))
        self.last_s = now_s
        return self.used_s


def others_s(proc: Path, fork_servers: Collection[int]) -> float | None:
    """Processor seconds of all processes but fork servers and those below, with ended children's.

    A process that ends leaves its time to the one that waits for it, so none is lost between two
    looks.  Threads of the kernel are nobody's: most of their work is the network's.

    Returns:
        None where some may be hidden.  All threads of the kernel descend from process 2: who sees
        that one sees all.
    """
    threads = {"2", *read_text(proc / "2/task/2/children").split()}
    if len(threads) == 1 or read_text(proc / "2/comm") != "kthreadd\n":
        return None
    names = (name for name in os.listdir(proc) if name.isdecimal() and name not in threads)
    stats = {int(name): stat for name in names if (stat := _numbers(f"{proc}/{name}/stat"))}
    parents = {process: int(stat[1]) for process, stat in stats.items()}
    # In user and kernel mode, and the same of children that it has waited for.
    ticks = {process: sum(map(int, stat[11:15])) for process, stat in stats.items()}
    ours = set(fork_servers)
    others = (process for process in ticks if ours.isdisjoint(_line(process, parents)))
    return sum(ticks[process] for process in others) / TICKS_PER_S


def _numbers(stat: str) -> list[bytes]:
    """What the kernel tells of a process, after its name; nothing if the process is gone."""
    text = b""
    with suppress(OSError):  # files of this kind take three times as long with `Path`
        file = os.open(stat, os.O_RDONLY)
        try:
            text = os.read(file, 4096)
        finally:
            os.close(file)
    return text.rpartition(b")")[2].split()


def _line(process: int, parents: Mapping[int, int]) -> Iterator[int]:
    """A process, and those above it that are there."""
    while process in parents:
        yield process
        process = parents[process]
