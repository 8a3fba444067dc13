"""What cases, models and inputs are called on pages, and what the files of a case are called.

Decides which conditions of a case its name tells: on pages whatever differs between the cases of a
sweep; in the names of files, which are short and never twice in a sweep, the fewest that set it
apart from the others of its model.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from analysis.data.columns import ASKED, CONDITIONS
from analysis.wording import slug
from ps_allreduce.point.models import Model
from ps_allreduce.point.workload import Scaling
from ps_allreduce.record.records import RunRecord

if TYPE_CHECKING:
    from analysis.data.cases import Case


#: What the batch is a batch of, by how the workload scales.
BATCH = {Scaling.WEAK: "batch per worker", Scaling.STRONG: "batch of all workers together"}


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
        words = (condition_words(name, Scaling(own["scaling"])) for name in told)
        values = (
            f"{word} {condition_value(name, own[name])}"
            for word, name in zip(words, told, strict=True)
        )
        names.append(", ".join([str(own["model"]), *values]))
    return names


def condition_words(name: str, *scalings: Scaling) -> str:
    """`emulated forward` for `emulated_forward_s`; a batch by whose it is, if in all cases alike.

    Args:
        scalings: of the cases that differ in it.
    """
    if name == "batch_per_worker":
        return BATCH[scalings[0]] if len({*scalings}) == 1 else "batch"
    return name.removeprefix(ASKED).removesuffix("_s").replace("_", " ")


def condition_value(name: str, value: object) -> str:
    """`0.0168 s`, or `none`."""
    return "none" if value is None else f"{value}{' s' * name.endswith('_s')}"


#: What is left out of names that are unique without it: what another condition's text says already.
_LEFT_OUT = (
    ("input_checksum", "port_buffer_bytes", "input_place"),
    ("input_checksum", "port_buffer_bytes"),
    (),
)


def _telling(rivals: pd.DataFrame) -> list[str]:
    """The conditions that differ.

    One that some cases do not have, and all others alike, follows from what these differ in: made
    images have no size of a buffer.  It is told only if nothing else tells cases apart, and so is
    what a name says already: a checksum of inputs, their place, the bytes of a network's ports.
    """
    text = rivals.map(str)
    differing = sorted(str(name) for name in text if text[name].nunique() > 1)
    apart = [name for name in differing if rivals[name].dropna().map(str).nunique() > 1]
    names = ([name for name in apart if name not in left_out] for left_out in _LEFT_OUT)
    unique = (told for told in names if told and not text[told].duplicated().any())
    return next(unique, differing)


#: Characters of a name, and of the digest that ends one which is longer, or not the only one.
_LONGEST, _DIGEST = 60, 6


def file_names(cases: Sequence[Case]) -> dict[Case, str]:
    """What file names tell of each case of a sweep; nothing of a case that is alone.

    Names follow from the conditions of all cases, whatever their order.  They differ in more than
    capital letters.
    """
    if len(cases) == 1:
        return dict.fromkeys(cases, "")
    told = {case: _told(case, cases) for case in cases}
    counts = Counter(name.lower() for name in told.values())
    return {
        case: name if counts[name.lower()] == 1 and len(name) <= _LONGEST else _marked(name, case)
        for case, name in told.items()
    }


def _told(case: Case, cases: Sequence[Case]) -> str:
    model = case.conditions["model"]
    rivals = [each for each in cases if each.conditions["model"] == model]
    values = [_value_text(column, case.conditions[column]) for column in _needed(rivals)]
    return slug(" ".join([model, *values]))


def _needed(rivals: Sequence[Case]) -> list[str]:
    """The conditions that tell some cases apart which those before them do not.

    Those that some cases do not have come last.
    """
    needed: list[str] = []
    told_apart = 1
    for column in sorted(CONDITIONS, key=lambda name: len(_values(rivals, name)) < 2):
        columns = (*needed, column)
        found = len({tuple(str(case.conditions[name]) for name in columns) for case in rivals})
        if found > told_apart:
            needed.append(column)
            told_apart = found
    return needed


def _values(rivals: Sequence[Case], column: str) -> set[str]:
    return {str(case.conditions[column]) for case in rivals} - {str(None)}


def _value_text(column: str, value: Any) -> str:
    """Text speaks for itself; a number has three digits and stands behind what it counts."""
    if isinstance(value, str):
        return value
    name, seconds = column.removeprefix(ASKED).removesuffix("_s"), "s" * column.endswith("_s")
    if isinstance(value, float):
        return f"{name} {value:.3g}{seconds}"
    return f"{name} none" if value is None else f"{name} {value}{seconds}"


def _marked(name: str, case: Case) -> str:
    """A name that is cut where it is too long, with a digest of all conditions."""
    told = ", ".join(f"{column} {value}" for column, value in case.conditions.items())
    digest = sha256(told.encode(errors="backslashreplace")).hexdigest()[:_DIGEST]
    return f"{name[: _LONGEST - _DIGEST - 1].rstrip('-')}-{digest}"
