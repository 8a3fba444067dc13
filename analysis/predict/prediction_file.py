"""Predictions as a file that is written before the runs which it predicts, and never again.

Decides what it holds, where it lies, and what its digest covers: everything but the moment at which
it was made.  So the same launches and the same question yield the same digest, whatever else lies
in the folder, and a file that was changed afterwards is found out.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from analysis.predict.predictions import Predicted, Question
from ps_allreduce.errors import RecordFormatError, UserError
from ps_allreduce.record.files import read_json, write_json
from ps_allreduce.record.provenance import ROOT, source_digest
from ps_allreduce.record.records import RunRecord
from ps_allreduce.serialization import from_json, to_json

FOLDER = "predictions"

UNKNOWN = "unknown"

_REMEDY = "Move the file elsewhere: the other predictions can then be checked."


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """What was learned from.

    Attributes:
        fingerprint: of machine, software and program.
        runs: names of the launches, in their order.
    """

    fingerprint: str
    runs: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictionFile:
    """What was predicted, when, by what and from what.

    Attributes:
        made_at: ISO 8601 with time zone.
        commit: of the checkout; `unknown` without git.
        program: digest of the sources that predict.
        digest: SHA-256 of all other keys but `made_at`.
    """

    made_at: str
    commit: str
    program: str
    question: Question
    calibration: Calibration
    predicted: Predicted
    digest: str = ""

    def digest_of_content(self) -> str:
        """What `digest` has to be."""
        content = to_json(replace(self, made_at="", digest=""))
        text = json.dumps(content, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()


def run_name(record: RunRecord) -> str:
    """What no two launches have in common."""
    return f"{record.run_id}@{record.started_at}"


def prediction_file(
    question: Question, calibrating: Sequence[RunRecord], predicted: Predicted
) -> PredictionFile:
    """The predictions with all that belongs to them, as of now."""
    made = PredictionFile(
        made_at=datetime.now(UTC).isoformat(timespec="seconds"),
        commit=head_of(ROOT),
        program=source_digest((ROOT / "analysis/predict").glob("*.py")),
        question=question,
        calibration=Calibration(
            fingerprint=calibrating[-1].block,
            runs=tuple(sorted(map(run_name, calibrating))),
        ),
        predicted=predicted,
    )
    return replace(made, digest=made.digest_of_content())


def save_predictions(made: PredictionFile, results: Path, into: Path | None = None) -> Path:
    """Write the file, below the results if nothing else is said; return where.

    Raises:
        UserError: there is such a file already, no permission, or no space left.
    """
    moment = datetime.fromisoformat(made.made_at).strftime("%Y-%m-%dT%H-%M-%S")
    path = into or results / FOLDER / f"{moment}.json"
    if path.exists():
        raise UserError(f"{path} exists already: predictions are never overwritten.")
    write_json(path, made)
    return path


def read_predictions(results: Path) -> list[PredictionFile]:
    """All files below the results, in the order in which they were made.

    Raises:
        UserError: there is none, or one was changed or cannot be read.
    """
    paths = sorted((results / FOLDER).glob("*.json"))
    if not paths:
        raise UserError(f"{results / FOLDER} holds no predictions: run predict first.")
    return sorted(map(read_prediction, paths), key=lambda made: made.made_at)


def read_prediction(path: Path) -> PredictionFile:
    """A file as it was written.

    Raises:
        RecordFormatError: it was changed, or cannot be read.
    """
    try:
        made = from_json(PredictionFile, read_json(path))
    except (OSError, ValueError, RecordFormatError) as error:
        why = str(error).rstrip(".")
        raise RecordFormatError(f"{path}: no readable predictions ({why}). {_REMEDY}") from error
    if made.digest != made.digest_of_content():
        raise RecordFormatError(
            f"{path} was changed after it was made: its digest is another. {_REMEDY}"
        )
    return made


def head_of(checkout: Path) -> str:
    """The commit of a checkout as git's own files tell it."""
    try:
        git = checkout / ".git"
        head = (git / "HEAD").read_text(encoding="ascii").strip()
        if not head.startswith("ref: "):
            return head[:12]
        name = head.removeprefix("ref: ")
        if (git / name).exists():
            return (git / name).read_text(encoding="ascii").strip()[:12]
        packed = (git / "packed-refs").read_text(encoding="ascii").splitlines()
        return next((line[:12] for line in packed if line.endswith(f" {name}")), UNKNOWN)
    except (OSError, UnicodeDecodeError):
        return UNKNOWN
