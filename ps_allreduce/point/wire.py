"""How gradients travel between tasks: by what, in messages of which size and number format.

Decides which settings and collectives there are and what they mean.  What each of them gains was
measured: `docs/performance.md`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import ClassVar

from ps_allreduce.errors import UserError
from ps_allreduce.exchange.buckets import Messages
from ps_allreduce.point.resources import Device
from ps_allreduce.serialization import Columns, column

#: Elements of gradients and parameters are float32 wherever they are computed with or kept.
ELEMENT_BYTES = 4


class WireType(StrEnum):
    """Number formats of gradients on the wire."""

    FLOAT32 = "float32"
    FLOAT16 = "float16"
    BFLOAT16 = "bfloat16"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wire(Columns):
    """How gradients travel in buckets.

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
    """

    kind: ClassVar[str] = "buckets"

    group_bytes: int = 500_000
    cut_bytes: int = 500_000
    in_flight: int = 4
    gradients: WireType = field(default=WireType.FLOAT32, metadata=column("gradients_on_wire"))

    def __post_init__(self) -> None:
        for name in ("group_bytes", "cut_bytes"):
            value = getattr(self, name)
            if value != 0 and value < ELEMENT_BYTES:
                raise UserError(f"{name} must be 0 or at least {ELEMENT_BYTES}, got {value}.")
        if self.in_flight < 0:
            raise UserError(f"in_flight must be at least 0 (no bound), got {self.in_flight}.")

    @property
    def messages(self) -> Messages:
        """The same in elements, as gradients are exchanged."""
        return Messages(
            group_size=self.group_bytes // ELEMENT_BYTES,
            cut_size=self.cut_bytes // ELEMENT_BYTES,
            in_flight=self.in_flight,
            number_format=self.gradients.value,
        )


#: The settings of a wire, by name.
WIRE_SETTINGS = tuple(each.name for each in fields(Wire))

#: Every tensor travels on its own, and all set out at once.
UNBUCKETED = Wire(group_bytes=0, cut_bytes=0, in_flight=0)


class Collective(StrEnum):
    """Implementations of the all-reduce collective."""

    RING = "ring"
    NCCL = "nccl"
    AUTO = "auto"


#: TensorFlow moves tensors between tasks by gRPC unless a collective brings its own way, and
#: Horovod by Gloo: both from memory of processors over sockets of TCP (decision 0025).
TCP = "tcp"


def carrier_of(collective: Collective, device: Device) -> str:
    """What a collective sends over: on processors AUTO takes a ring, on GPUs NCCL if it can.

    TensorFlow decides so (`AssignCollectiveType` in `collective_param_resolver_local.cc`).
    """
    return TCP if device is Device.CPU else _ON_GPUS[collective]


_ON_GPUS = {Collective.RING: TCP, Collective.NCCL: "nccl", Collective.AUTO: "auto"}


def transport_text(carrier: str, gradients: WireType) -> str:
    """`tcp`, or `tcp in float16` where gradients do not travel in float32."""
    return carrier if gradients is WireType.FLOAT32 else f"{carrier} in {gradients}"
