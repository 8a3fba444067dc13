"""Spoil files of a sweep while no suite runs."""

from __future__ import annotations

import json
import os
from pathlib import Path

from tests.faults.ground import Ground
from tests.faults.plan import Fault, Target, Verb
from tests.faults.strike import picked

GARBAGE = b"\x00\xff{not json"

NESTED = '{"sweep": ' + "[" * 1000 + "]" * 1000 + "}"

OTHER_VERSIONS = (4, 99, None, "5")

OTHER_NAMES = ("0-0.bak.json", "5-0.json", "x-y.json")


def damage(fault: Fault, ground: Ground) -> tuple[Path, ...]:
    """Spoil one file; return its path, and the new one if it has one; nothing if there is none."""
    path = picked(_candidates(fault.target, ground), fault.pick)
    if path is None:
        return ()
    match fault.verb:
        case Verb.RENAME:
            return path, path.rename(path.with_name(OTHER_NAMES[int(fault.pick * 3)]))
        case Verb.TRUNCATE:
            os.truncate(path, int(fault.pick * path.stat().st_size))
        case Verb.GARBLE:
            path.write_bytes(GARBAGE)
        case Verb.FOLDER:
            path.unlink(missing_ok=True)
            path.mkdir()
        case Verb.FIFO:
            path.unlink()
            os.mkfifo(path)
        case _:
            try:
                path.write_text(_spoiled(path.read_text(encoding="utf-8"), fault))
            except (ValueError, RecursionError):  # another fault has spoiled it already
                return ()
    return (path,)


def _candidates(target: Target, ground: Ground) -> list[Path]:
    if target is Target.NOTE:
        note = ground.sweep_dir / "in_flight.json"
        return [note] if ground.sweep_dir.is_dir() and not note.is_dir() else []
    records = ground.records()
    files = {
        Target.RECORD: records,
        Target.RAW: [path.with_suffix(".npz") for path in records],
        Target.DEFINITION: [ground.sweep_dir / "sweep.json"],
    }
    return [path for path in files[target] if path.is_file()]


def _spoiled(text: str, fault: Fault) -> str:
    match fault.verb:
        case Verb.NEST:
            return NESTED
        case Verb.REPEAT_KEYS:
            return text.rstrip().removesuffix("}") + ', "status": "ok", "repetition": 7}\n'
        case Verb.OTHER_VERSION:
            change: dict[str, object] = {"format_version": OTHER_VERSIONS[int(fault.pick * 4)]}
        case _:
            change = {"order": 3}
    return json.dumps(json.loads(text) | change)
