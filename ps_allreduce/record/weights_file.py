"""The weights of a run: a NumPy archive without pickles.

Decides how its arrays are named: `0000`, `0001` and so on are the trainable variables at the end,
in creation order, and `initial/0000` and so on those that training began with.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

INITIAL = "initial/"

Values = Sequence[npt.NDArray[np.float32]]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunWeights:
    """The trainable variables in creation order, before the first step and after the last."""

    initial: Values
    final: Values


def save_weights(path: Path, weights: RunWeights) -> None:
    """Write the archive."""
    arrays = _named("", weights.final) | _named(INITIAL, weights.initial)
    np.savez(path, allow_pickle=False, **arrays)


def _named(prefix: str, values: Values) -> dict[str, npt.NDArray[np.float32]]:
    return {f"{prefix}{number:04d}": value for number, value in enumerate(values)}


def load_weights(path: Path) -> RunWeights:
    """Read the archive."""
    with np.load(path, allow_pickle=False) as archive:
        return RunWeights(initial=_values(archive, INITIAL), final=_values(archive, ""))


def _values(archive: Mapping[str, npt.NDArray[np.float32]], prefix: str) -> Values:
    count = sum(name.startswith(INITIAL) for name in archive)
    return tuple(archive[f"{prefix}{number:04d}"] for number in range(count))
