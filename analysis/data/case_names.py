"""What cases, models and inputs are called on pages: as shortly as they can be told apart.

Decides which conditions of a case its name tells.  What its files are called is decided in
`figures.names`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pandas as pd

from analysis.data.columns import ASKED, CONDITIONS
from ps_allreduce.point.models import Model
from ps_allreduce.record.records import RunRecord


def model_names(runs: pd.DataFrame, records: Mapping[str, RunRecord]) -> list[str]:
    """One name of each run's model: that of a user's own file may have been typed in several ways.

    Args:
        records: by the index of the runs.
    """
    models = [records[str(path)].experiment.workload.model for path in runs.index]
    names: dict[Model, str] = {}
    return [names.setdefault(model, model.name) for model in models]


def input_names(runs: pd.DataFrame) -> list[str]:
    """A short name of each run's input; a folder that was moved holds the same data still."""
    names: dict[object, str] = {}
    told = zip(runs["input_checksum"], runs["input"], strict=True)
    return [
        str(name) if pd.isna(checksum) else names.setdefault(checksum, _ending(str(name)))
        for checksum, name in told
    ]


def _ending(path: str) -> str:
    """The last two folders of a path."""
    return "/".join([part for part in Path(path).parts if part != "/"][-2:])


def case_names(cases: pd.DataFrame) -> list[str]:
    """The model, then whatever differs between the cases of one sweep."""
    described = cases[list(CONDITIONS)].rename(columns=lambda name: name.removeprefix(ASKED))
    names = []
    for _, own in described.iterrows():
        told = _telling(described[described["model"] == own["model"]])
        values = (f"{name} {'none' if own[name] is None else own[name]}" for name in told)
        names.append(", ".join([str(own["model"]), *values]))
    return names


def _telling(rivals: pd.DataFrame) -> list[str]:
    """The conditions that differ.

    One that some cases do not have, and all others alike, follows from what these differ in: made
    images have no size of a buffer.  It is told only if nothing else tells cases apart, and so is
    what a name says already: a checksum of inputs, the bytes of a network's ports.
    """
    text = rivals.map(str)
    differing = sorted(str(name) for name in text if text[name].nunique() > 1)
    apart = [name for name in differing if rivals[name].dropna().map(str).nunique() > 1]
    readable = [name for name in apart if name not in ("input_checksum", "port_buffer_bytes")]
    unique = (told for told in (readable, apart) if told and not text[told].duplicated().any())
    return next(unique, differing)
