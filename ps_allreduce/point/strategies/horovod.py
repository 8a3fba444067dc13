"""Horovod: a library of its own averages gradients, and decides what travels together.

Decides which of Horovod's settings can be stated.  How it is driven is decided in
`backends.horovod`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ps_allreduce.errors import UserError, at_least
from ps_allreduce.point.strategies.base import Strategy, StrategySettings

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
    understands: ClassVar[frozenset[str]] = frozenset({"fusion_bytes", "cycle_ms"})
    uses_collective: ClassVar[bool] = True
    replicated: ClassVar[bool] = True
    module: ClassVar[str | None] = "horovod"

    fusion_bytes: int = 128 * 1024**2
    cycle_ms: float = 1.0

    def __post_init__(self) -> None:
        at_least(0, fusion_bytes=self.fusion_bytes)
        if not 0.0 < self.cycle_ms <= MOST_CYCLE_MS:
            raise UserError(
                f"cycle_ms must be above 0 and at most {MOST_CYCLE_MS:g}, got {self.cycle_ms:g}."
            )

    @classmethod
    def _made(cls, settings: StrategySettings) -> Horovod:
        return settings.put_into(cls())

    @property
    def transport(self) -> str:
        """What carries the gradients."""
        return "gloo"

    def columns(self) -> dict[str, object]:
        """The settings by the name of their column."""
        return {
            **Strategy.columns(self),
            "fusion_bytes": self.fusion_bytes,
            "cycle_ms": self.cycle_ms,
            "host_aggregation": False,
        }

    def title_parts(self) -> list[str]:
        """What is not at its default."""
        default = Horovod()
        fused = [f"fusion {self.fusion_bytes / 1e6:g} MB"]
        cycle = [f"cycle {self.cycle_ms:g} ms"]
        return [
            *(fused if self.fusion_bytes != default.fusion_bytes else []),
            *(cycle if self.cycle_ms != default.cycle_ms else []),
        ]
