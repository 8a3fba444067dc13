"""What the files of a case are called: short, readable, and never twice in a sweep.

Decides which conditions of a case its name tells: the fewest that set it apart from the others of
its model.  What a case is called on pages is decided in `data.case_names`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from hashlib import sha256
from typing import Any

from analysis.data.cases import Case
from analysis.data.columns import ASKED, CONDITIONS

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


def slug(name: str) -> str:
    """A name as part of a file name."""
    return re.sub(r"[^A-Za-z0-9.]+", "-", name).strip("-")
