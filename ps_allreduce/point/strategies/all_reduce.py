"""Every worker keeps a replica, and gradients are averaged among the workers.

TensorFlow's collectives do it, or Horovod, a library of its own, which decides what travels
together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from ps_allreduce.declared import typed
from ps_allreduce.errors import UserError, at_least
from ps_allreduce.point.resources import Device, Resources, Spread
from ps_allreduce.point.strategies.base import LookingUp, Strategy, StrategySide
from ps_allreduce.point.strategies.stated import StrategySettings
from ps_allreduce.point.wire import (
    WIRE_SETTINGS,
    Collective,
    Wire,
    WireType,
    carrier_of,
    transport_text,
)
from ps_allreduce.serialization import Columns


@dataclass(frozen=True, slots=True, kw_only=True)
class Packs(Columns):
    """TensorFlow packs and orders what it reduces.

    Attributes:
        bytes_per_pack: of float32; 0 is one single pack, TensorFlow's default.
    """

    kind: ClassVar[str] = "packs"

    bytes_per_pack: int = 0

    def __post_init__(self) -> None:
        at_least(0, bytes_per_pack=self.bytes_per_pack)


@dataclass(frozen=True, slots=True, kw_only=True)
class AllReduce(LookingUp):
    """Averages gradients by a collective of the workers.

    Attributes:
        sending: what is reduced at once: buckets as a `Wire` says, which RING alone can, or
            TensorFlow's packs.
    """

    kind: ClassVar[str] = "allreduce"
    label: ClassVar[str] = "all-reduce"
    side: ClassVar[StrategySide] = StrategySide.ALL_REDUCE
    implied: ClassVar[Mapping[str, object]] = {"bytes_per_pack": None, "host_aggregation": False}
    replicated: ClassVar[bool] = True
    export_refusal: ClassVar[str] = ""

    collective: Collective = Collective.RING
    sending: Wire | Packs = field(default_factory=Wire)

    def __post_init__(self) -> None:
        if self.is_sparse and self.wire is None:
            raise UserError("in packs embeddings are dense: leave --embeddings sparse out.")
        self._check_wire_of_rows()
        if isinstance(self.sending, Wire) and self.collective is not Collective.RING:
            raise UserError(
                f"collective {self.collective} is used in TensorFlow's packs: state "
                "bytes_per_pack (0 for one pack)."
            )

    @classmethod
    def variants(cls) -> Sequence[StrategySettings]:
        """Packs as well."""
        return [*LookingUp.variants(), StrategySettings(bytes_per_pack=0)]

    @classmethod
    def _made(cls, settings: StrategySettings) -> AllReduce:
        collective = settings.collective or Collective.RING
        if settings.bytes_per_pack is None and collective is Collective.RING:
            return settings.put_into(cls())
        if stated := [name for name in settings.stated if name in WIRE_SETTINGS]:
            raise UserError(
                f"in packs (--bytes-per-pack, or --collective {Collective.NCCL} or "
                f"{Collective.AUTO}) TensorFlow decides what is sent: leave "
                f"{', '.join(map(typed, stated))} out."
            )
        return settings.put_into(cls(collective=collective, sending=Packs()))

    @property
    def wire(self) -> Wire | None:
        """How gradients travel in buckets; None in packs."""
        return self.sending if isinstance(self.sending, Wire) else None

    @property
    def packed_bytes(self) -> int | None:
        """None in buckets."""
        return self.sending.bytes_per_pack if isinstance(self.sending, Packs) else None

    def transport_on(self, device: Device) -> str:
        """That of the collective; packs travel in float32."""
        gradients = self.wire.gradients if self.wire else WireType.FLOAT32
        return transport_text(carrier_of(self.collective, device), gradients)

    def check_fits(self, num_workers: int, spread: Spread | None, resources: Resources) -> None:
        """NCCL needs GPUs."""
        Strategy.check_fits(self, num_workers, spread, resources)
        if self.collective is Collective.NCCL and resources.device is not Device.GPU:
            raise UserError("collective nccl needs workers on GPUs; on CPUs use ring or auto.")


#: Longer than any step: nobody waits so long for gradients that might travel together.
MOST_CYCLE_MS = 10_000.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Horovod(Strategy):
    """Averages gradients by Horovod over Gloo; the defaults are those of Horovod 0.28.

    Gradients of GPUs pass through the memory of the host: there is no NCCL in what we build.

    Attributes:
        fusion_bytes: gradients that are ready together travel together up to so many bytes; 0 sends
            each on its own (HOROVOD_FUSION_THRESHOLD).
        cycle_ms: Horovod looks every so many milliseconds which gradients are ready at all workers
            (HOROVOD_CYCLE_TIME).
    """

    kind: ClassVar[str] = "horovod"
    label: ClassVar[str] = "Horovod"
    side: ClassVar[StrategySide] = StrategySide.ALL_REDUCE
    implied: ClassVar[Mapping[str, object]] = {"host_aggregation": False}
    replicated: ClassVar[bool] = True
    export_refusal: ClassVar[str] = (
        "a training of your own would need a built Horovod, which export does not take along. "
        "Choose another setting."
    )
    module: ClassVar[str | None] = "horovod"

    fusion_bytes: int = 128 * 1024**2
    cycle_ms: float = 1.0

    def __post_init__(self) -> None:
        at_least(0, fusion_bytes=self.fusion_bytes)
        if not 0.0 < self.cycle_ms <= MOST_CYCLE_MS:
            raise UserError(
                f"cycle_ms must be above 0 and at most {MOST_CYCLE_MS:g}, got {self.cycle_ms:g}."
            )

    @property
    def packed_bytes(self) -> int | None:
        """Without fusion each gradient is sent on its own."""
        return self.fusion_bytes or None
