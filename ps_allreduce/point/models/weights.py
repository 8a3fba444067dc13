"""Models of which only the variables are there: an emulated accelerator sends them uncomputed.

Decides which ones there are: published ones, equal tensors, and models with smaller variables.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from typing import ClassVar

from ps_allreduce.errors import UserError
from ps_allreduce.point.models.shapes import KNOWN, PUBLISHED, known_variables
from ps_allreduce.point.models.trained import Unit, unknown_model
from ps_allreduce.point.placement import VariableSpec


class Uncomputed:
    """What all of them have."""

    __slots__ = ()

    computes: ClassVar[bool] = False

    @property
    def tokens_per_example(self) -> int | None:
        """Of the longest sequence; None of images."""
        return None

    @property
    def unit(self) -> Unit:
        """What its examples would be."""
        return Unit.IMAGES if self.tokens_per_example is None else Unit.TOKENS

    def columns(self) -> dict[str, object]:
        """None but the name, which all models have."""
        return {}


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedModel(Uncomputed):
    """No computation but the variables of a published model, to be sent as those of `TensorSet`."""

    kind: ClassVar[str] = "published_shapes"

    name: str

    def __post_init__(self) -> None:
        if self.name not in PUBLISHED:
            raise unknown_model(self.name)

    @property
    def tokens_per_example(self) -> int | None:
        """Of the longest sequence; None of images."""
        return PUBLISHED[self.name].tokens_per_example

    @property
    def variables(self) -> tuple[VariableSpec, ...]:
        """All of them, in creation order."""
        return PUBLISHED[self.name].variables


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorSet(Uncomputed):
    """No computation but equal tensors, to be sent by an emulated accelerator: `Tensors-16-25MB`.

    Attributes:
        count: number of tensors.
        num_bytes: of all together, in float32; a little less where they cannot be divided equally.
    """

    kind: ClassVar[str] = "tensors"
    unit: ClassVar[Unit] = Unit.ROWS

    count: int
    num_bytes: int

    def __post_init__(self) -> None:
        if not 1 <= self.count <= 10_000 or not 4 * self.count <= self.num_bytes <= 10**10:
            raise UserError(
                f"model {self.name}: choose 1 to 10000 tensors, of 4 bytes each or more and 10 GB "
                "together at most."
            )

    @property
    def name(self) -> str:
        """As users write it, in whole megabytes where that is exact."""
        unit, size = ("KB", 10**3) if self.num_bytes % 10**6 else ("MB", 10**6)
        return f"Tensors-{self.count}-{self.num_bytes // size}{unit}"

    @property
    def elements(self) -> int:
        """Size of each tensor."""
        return self.num_bytes // 4 // self.count

    @property
    def variables(self) -> tuple[VariableSpec, ...]:
        """All tensors."""
        return tuple(
            VariableSpec(
                name=f"tensor_{number}", shape=(self.elements,), dtype="float32", trainable=True
            )
            for number in range(self.count)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaledModel(Uncomputed):
    """No computation but a model's variables, each so many times smaller: `InceptionV3/32`.

    Their proportions stay, so slow links and few hosts show what fast links and many hosts would.
    """

    kind: ClassVar[str] = "scaled_model"

    base: str
    divisor: int

    def __post_init__(self) -> None:
        if self.base not in KNOWN:
            raise UserError(
                f"model {self.name}: the variables of {self.base or 'no name'} are not known "
                f"beforehand; choose one of {', '.join(KNOWN)}."
            )
        if not 1 <= self.divisor <= 10**6:
            raise UserError(f"model {self.name}: write 1 to 1000000 after the slash.")

    @property
    def name(self) -> str:
        """As users write it."""
        return f"{self.base}/{self.divisor}"

    @property
    def tokens_per_example(self) -> int | None:
        """Those of the model."""
        published = PUBLISHED.get(self.base)
        return None if published is None else published.tokens_per_example

    @property
    def variables(self) -> tuple[VariableSpec, ...]:
        """All of them in creation order; each is flat, and keeps an element at least."""
        return tuple(
            replace(spec, shape=(max(1, math.prod(spec.shape) // self.divisor),))
            for spec in known_variables(self.base)
        )


#: What is sent without being computed; its variables are known without TensorFlow.
Weights = PublishedModel | TensorSet | ScaledModel


def tensor_set(name: str) -> TensorSet | None:
    """Read a name such as `Tensors-160-100MB`; None if it is the name of an architecture.

    Raises:
        UserError: a tensor would have no element, or there are too many to be handled.
    """
    found = re.fullmatch(r"Tensors-([0-9]{1,9})-([0-9]{1,9})(KB|MB)", name)
    if found is None:
        return None
    count, amount, unit = found.groups()
    return TensorSet(count=int(count), num_bytes=int(amount) * {"KB": 10**3, "MB": 10**6}[unit])


def scaled_model(name: str) -> ScaledModel | None:
    """Read a name such as `InceptionV3/32`; None if it is none of this form.

    Raises:
        UserError: the variables of the model are not known, or it cannot be divided so.
    """
    found = re.fullmatch(r"([^/]*)/([0-9]{1,9})", name)
    return None if found is None else ScaledModel(base=found[1], divisor=int(found[2]))
