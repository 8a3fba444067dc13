"""Where one faulted sweep lives: two small disks of its own, and a mark on all of its processes.

Decides that faults find their victims below the suite's own process, by the mark in its environment
and in the sweep's own folders: nothing else on the machine is touched.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from ps_allreduce.record.provenance import ROOT

#: Seconds until a run of the sweep has timed out, on a machine that does nothing else.
RUN_DEADLINE_S = 20.0

#: Who hangs is not waited for much longer, however busy the machine is.
MOST_PATIENCE = 3.0

CLONE_NEWNS = 0x00020000

MARK = "FAULTED_SWEEP"

#: Nothing that a tiny sweep writes comes near this.
DISK_SIZE = "32m"

SERVER_WORDS = "ps_allreduce.fork_server.server"

NETWORK_WORDS = "launchers.sites.emulated.network_process"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """Folders of one faulted sweep.

    Attributes:
        folder: on an ordinary disk; what calls say is kept here.
        deadline_s: of every run.
    """

    folder: Path
    deadline_s: float = RUN_DEADLINE_S

    @property
    def temporary_disk(self) -> Path:
        """A disk that can be filled."""
        return self.folder / "temporary"

    @property
    def results_disk(self) -> Path:
        return self.folder / "disk"

    @property
    def tmpdir(self) -> Path:
        return self.temporary_disk / "tmp"

    @property
    def results(self) -> Path:
        return self.results_disk / "results"

    @property
    def sweep_dir(self) -> Path:
        """Where the suite keeps this sweep."""
        return self.results / "compare"

    @property
    def mark(self) -> str:
        """Set in the environment of every process of the sweep, and of no other."""
        return str(self.folder)

    def environment(self) -> dict[str, str]:
        own = {"PYTHONPATH": str(ROOT), "TMPDIR": str(self.tmpdir), MARK: self.mark}
        return os.environ | own

    def processes(self) -> list[psutil.Process]:
        """All living processes of the sweep, wherever they belong now."""
        return [process for process in psutil.process_iter() if _is_marked(process, self.mark)]

    def records(self) -> list[Path]:
        """Everything in the place of a record."""
        paths = self.sweep_dir.glob("runs/*/*-*.json")
        return sorted(path for path in paths if path.parent.name != "refused")


def _is_marked(process: psutil.Process, mark: str) -> bool:
    try:
        living = process.status() != psutil.STATUS_ZOMBIE
        return living and process.environ().get(MARK) == mark
    except (psutil.Error, OSError):
        return False


@contextmanager
def fresh_ground() -> Iterator[Ground]:
    """Make disks for one sweep; take them away afterwards, with all that still lives."""
    with tempfile.TemporaryDirectory(prefix="faulted-", ignore_cleanup_errors=True) as folder:
        ground = Ground(folder=Path(folder), deadline_s=RUN_DEADLINE_S * patience())
        disks = (ground.temporary_disk, ground.results_disk)
        for disk in disks:
            disk.mkdir()
            words = ["mount", "-t", "tmpfs", "-o", f"size={DISK_SIZE}", "faults", str(disk)]
            subprocess.run(words, check=True)
        ground.tmpdir.mkdir()
        try:
            yield ground
        finally:
            end_all(ground)
            for disk in disks:
                subprocess.run(["umount", "--lazy", str(disk)], check=True)


def end_all(ground: Ground) -> None:
    """Kill what is left of the sweep."""
    for process in ground.processes():
        with suppress(psutil.Error):
            process.kill()


def patience() -> float:
    """By how much longer everything may take now, because others use this machine, too."""
    busy = os.getloadavg()[0] / len(os.sched_getaffinity(0))
    return min(max(1.0, busy), MOST_PATIENCE)


def hide_mounts() -> None:
    """Let this process, and what it starts, have mounts that nobody else sees.

    Raises:
        OSError: it may not.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWNS):
        raise OSError(ctypes.get_errno(), "faults need a mount namespace of their own")
    subprocess.run(["mount", "--make-rprivate", "/"], check=True)
