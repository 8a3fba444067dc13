"""One line of JSON for every fault, and what they add up to."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import pandas as pd

from ps_allreduce.serialization import from_json, parse_json, to_json


class Verdict(StrEnum):
    """What became of a fault."""

    HELD = "held"
    BROKE = "broke"
    MISSED = "missed"


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultLine:
    """One fault of one sweep.

    Attributes:
        fault: name of its class.
        company: classes of the other faults of the same sweep: what broke may be theirs.
        verdict: missed, if the moment never came or there was no victim.
        broke: what did not hold, a line each.
        calls: of the suite, for this sweep.
        took_s: the sweep.
    """

    seed: int
    launcher: str
    fault: str
    moment: str
    victim: str
    company: tuple[str, ...]
    verdict: Verdict
    broke: tuple[str, ...]
    calls: int
    took_s: float


def append(file: Path, lines: Iterable[FaultLine]) -> None:
    """Add lines to a file; they are whole even if somebody else adds to it."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("a", encoding="utf-8") as stream:
        stream.write("".join(json.dumps(to_json(line)) + "\n" for line in lines))


def read(file: Path) -> list[FaultLine]:
    texts = file.read_text(encoding="utf-8").splitlines()
    return [from_json(FaultLine, parse_json(text.encode()), str(file)) for text in texts]


def summarise(lines: Sequence[FaultLine]) -> pd.DataFrame:
    """Per class: how many held, broke and were missed, and kinds of what broke.

    `alone` counts those that broke without another fault in the same sweep.
    """
    rows = [
        {
            "class": line.fault,
            **{str(verdict): line.verdict is verdict for verdict in Verdict},
            "alone": line.verdict is Verdict.BROKE and not line.company,
        }
        for line in lines
    ]
    table = pd.DataFrame(rows).groupby("class").sum()
    broke = [
        {_kind(text) for line in lines if line.fault == kind for text in line.broke}
        for kind in table.index
    ]
    return table.assign(what=[", ".join(sorted(kinds)) for kinds in broke])


def _kind(text: str) -> str:
    return text.partition(":")[0]
