"""A launcher that was killed leaves a scratch folder; the next one removes it, and only it."""

from __future__ import annotations

import os
from pathlib import Path

from launchers.local import SCRATCH_PREFIX, remove_left_overs

NO_PROCESS = 2**22 + 1


def test_folders_of_dead_processes_go_and_others_stay(tmp_path: Path) -> None:
    dead = tmp_path / f"{SCRATCH_PREFIX}{NO_PROCESS}-abc"
    alive = tmp_path / f"{SCRATCH_PREFIX}{os.getpid()}-abc"
    others = tmp_path / f"{SCRATCH_PREFIX}notes-abc"
    for folder in (dead, alive, others):
        (folder / "inside").mkdir(parents=True)
    remove_left_overs(tmp_path)
    assert not dead.exists()
    assert alive.exists()
    assert others.exists()
