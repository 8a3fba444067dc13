"""How far weights differ from those of a reference, and whether that is too far.  Pure.

Decides the measure and the limit of the correctness gate, and how both are shown.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import numpy.typing as npt
from rich import box
from rich.table import Table

from ps_allreduce.record.variables import RunWeights, Values

#: Of the distance trained.  Sums in another order round differently; a wrong mean differs by far
#: more.
LIMIT = 1e-4


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """How far weights are from those of a reference.

    Attributes:
        distance: Euclidean, of all trainable weights together, relative to the distance that the
            reference trained: ||w - w_ref|| / ||w_ref - w_0||.
        furthest: name of the variable that contributes most.
        furthest_distance: its own distance, relative to the same.  A variable that hardly moves,
            such as a bias before batch norm, has no distance of its own to be compared with.
    """

    distance: float
    furthest: str
    furthest_distance: float

    @property
    def holds(self) -> bool:
        """The distance is within the limit."""
        return self.distance <= LIMIT


class GateVerdict(StrEnum):
    """What became of an arm of the gate."""

    AGREES = "agrees"
    DIFFERS = "DIFFERS"
    NOT_TRAINED = "NOT TRAINED"


@dataclass(frozen=True, slots=True, kw_only=True)
class GateArm:
    """A setting that must agree with a single worker, and whether it does.

    Attributes:
        run, reference: run identities of both.
        agreement: None if there are no weights to be compared.
        reason: why there are none.
    """

    name: str
    run: str
    reference: str
    agreement: Agreement | None = None
    reason: str = ""

    @property
    def verdict(self) -> GateVerdict:
        """Whether it agrees."""
        if self.agreement is None:
            return GateVerdict.NOT_TRAINED
        return GateVerdict.AGREES if self.agreement.holds else GateVerdict.DIFFERS


def compare(weights: Values, reference: RunWeights, names: Sequence[str]) -> Agreement:
    """Compare weights with those of a reference.

    Args:
        weights: trainable variables in creation order; finite.
        names: of the variables.

    Raises:
        ValueError: the variables are not the same, or the reference stayed where it was.
    """
    missed = [_length(a, b) for a, b in zip(weights, reference.final, strict=True)]
    gone = [_length(a, b) for a, b in zip(reference.final, reference.initial, strict=True)]
    way = math.hypot(*gone)
    if not way:
        raise ValueError("the reference did not train")
    worst = int(np.argmax(missed))
    return Agreement(
        distance=math.hypot(*missed) / way,
        furthest=names[worst],
        furthest_distance=missed[worst] / way,
    )


def _length(a: npt.NDArray[np.float32], b: npt.NDArray[np.float32]) -> float:
    if a.shape != b.shape:
        raise ValueError(f"a variable has the shape {a.shape}, and in the reference {b.shape}")
    return float(np.linalg.norm(np.subtract(a, b, dtype=np.float64)))


def render_arms(arms: Sequence[GateArm]) -> Table:
    """Every arm on a line: its distance, and the variable that contributes most."""
    table = Table(box=box.SIMPLE_HEAD)
    for heading in ("setting", "distance", "most of it", "from", "verdict"):
        table.add_column(heading)
    for arm in arms:
        table.add_row(arm.name, *_cells(arm.agreement), arm.verdict)
    return table


def _cells(found: Agreement | None) -> tuple[str, str, str]:
    if found is None or not found.distance:
        return "-" if found is None else "0", "-", "-"
    return f"{found.distance:.1e}", f"{found.furthest_distance:.1e}", found.furthest
