"""Published speeds of accelerators, which an emulated one takes.

`published_speeds.csv` holds images per second of a single accelerator, the batch of that
measurement, and where the number is from.  What is made of them is decided by whoever reads them.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path

_FILE = Path(__file__).resolve().parent / "published_speeds.csv"


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedSpeed:
    """How fast an accelerator trained a model alone.

    Attributes:
        precision: as it was published.
        batch: of that measurement.
    """

    device: str
    precision: str
    model: str
    images_per_sec: float
    batch: int
    source: str

    def __str__(self) -> str:
        return self.device if self.precision == "float32" else f"{self.device}, {self.precision}"


def _speeds() -> tuple[PublishedSpeed, ...]:
    with _FILE.open(encoding="utf-8", newline="") as rows:
        return tuple(
            PublishedSpeed(
                device=row["device"],
                precision=row["precision"],
                model=row["model"],
                images_per_sec=float(row["images_per_sec"]),
                batch=int(row["batch"]),
                source=row["source"],
            )
            for row in csv.DictReader(rows)
        )


SPEEDS = _speeds()
