"""How gradients travel between tasks: sizes of messages, how many at once, in which number format.

Decides which settings there are and what they mean.  What each of them gains was measured:
`docs/performance.md`.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import StrEnum

from ps_allreduce.errors import UserError

#: Elements of gradients and parameters are float32 wherever they are computed with or kept.
ELEMENT_BYTES = 4


class WireType(StrEnum):
    """Number formats of gradients on the wire."""

    FLOAT32 = "float32"
    FLOAT16 = "float16"
    BFLOAT16 = "bfloat16"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wire:
    """Settings of every strategy that communicates.

    Attributes:
        group_bytes: neighbouring tensors are sent in one message up to so many bytes of float32; 0
            sends each on its own.
        cut_bytes: larger tensors are cut into messages of at most so many bytes of float32; 0 never
            cuts.  A ring of n workers cuts what it is given once more, into n parts, so it is given
            n times as much as either size at once.
        in_flight: so many messages are under way at once, in the ring or to each server until the
            new value is back; 0 is no bound.  Sends that start together share the link and all
            arrive late.
        gradients: the format of gradients on the wire; parameters travel in float32.
        host_aggregation: workers of one host send the mean of their gradients once, and fetch new
            values once (what tf_cnn_benchmarks called distributed_replicated).
    """

    group_bytes: int = 500_000
    cut_bytes: int = 500_000
    in_flight: int = 4
    gradients: WireType = WireType.FLOAT32
    host_aggregation: bool = False

    def __post_init__(self) -> None:
        for name in ("group_bytes", "cut_bytes"):
            value = getattr(self, name)
            if value != 0 and value < ELEMENT_BYTES:
                raise UserError(f"{name} must be 0 or at least {ELEMENT_BYTES}, got {value}.")
        if self.in_flight < 0:
            raise UserError(f"in_flight must be at least 0 (no bound), got {self.in_flight}.")

    @property
    def changed(self) -> dict[str, object]:
        """The settings that are not at their default, by name."""
        values = {each.name: (getattr(self, each.name), each.default) for each in fields(self)}
        return {name: value for name, (value, usual) in values.items() if value != usual}

    @property
    def group_size(self) -> int:
        """Elements that are grouped at most."""
        return self.group_bytes // ELEMENT_BYTES

    @property
    def cut_size(self) -> int:
        """Elements of a message that was cut, at most."""
        return self.cut_bytes // ELEMENT_BYTES


#: TensorFlow's own way: every tensor for itself, all at once.
STOCK = Wire(group_bytes=0, cut_bytes=0, in_flight=0)
