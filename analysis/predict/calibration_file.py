"""What was learned of a cluster, as a file that answers without its launches, and those shipped.

Decides what such a file holds, and which clusters come with the suite, so that a first answer needs
none: those of which published rates tell enough, and emulated hosts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from analysis.predict.literature import FOLDER
from analysis.predict.predictions import Teller
from analysis.predict.published_clusters import published_tellers
from ps_allreduce.errors import RecordFormatError
from ps_allreduce.record.files import read_json, write_json
from ps_allreduce.serialization import from_json

NAME = "calibration.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationFile:
    """Settings of one model on one cluster.

    Attributes:
        source: where and when it was measured, in words.
        settings: synchronous ones.
    """

    source: str
    settings: tuple[Teller, ...]


def save_calibration(path: Path, made: CalibrationFile) -> None:
    """Write it.

    Raises:
        UserError: no permission, or no space left.
    """
    write_json(path, made)


def read_calibration(path: Path) -> CalibrationFile:
    """Read what `save_calibration` wrote.

    Raises:
        RecordFormatError: it cannot be read.
    """
    try:
        return from_json(CalibrationFile, read_json(path), str(path))
    except (OSError, ValueError) as error:
        raise RecordFormatError(f"{path}: no readable calibration ({error}).") from error


def _published(name: str, about: str) -> CalibrationFile:
    source = f"{about}, published by E. Bugliarello, CSCS 2017 (docs/studies/piz-daint.md)"
    return CalibrationFile(source=source, settings=published_tellers(name))


#: What comes with the suite, by its name.
SHIPPED: Mapping[str, Callable[[], CalibrationFile]] = {
    "emulated": partial(read_calibration, FOLDER / "emulated.json"),
    "piz-daint": partial(_published, "piz-daint", "InceptionV3 on Piz Daint, P100"),
    "p2.xlarge": partial(_published, "p2.xlarge", "InceptionV3 on Amazon's p2.xlarge, K80"),
}
