"""What a run measures: throughput in a window, or what recording its steps costs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ps_allreduce.errors import at_least


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """The least lengths of a run's parts; of two, both must be reached.

    Attributes:
        warmup_steps, warmup_s: of every worker.
        measured_steps, measured_s: per worker.
        event_steps: steps after the measured window that are traced tensor by tensor.
    """

    kind: ClassVar[str] = "window"

    warmup_steps: int = 10
    warmup_s: float = 5.0
    measured_steps: int = 100
    measured_s: float = 0.0
    event_steps: int = 0

    def __post_init__(self) -> None:
        at_least(1, measured_steps=self.measured_steps, warmup_steps=self.warmup_steps)
        at_least(
            0, warmup_s=self.warmup_s, measured_s=self.measured_s, event_steps=self.event_steps
        )

    def least_warmup_s(self, step_s: float) -> float:
        """How long warming up takes at least where a step takes so many seconds."""
        return max(self.warmup_s, self.warmup_steps * step_s)

    def least_measured_s(self, step_s: float) -> float:
        """How long the steps after the warm-up take at least, traced ones included."""
        return max(self.measured_s, self.measured_steps * step_s) + self.event_steps * step_s

    def columns(self) -> dict[str, object]:
        """As columns of a table."""
        return {
            "least_warmup_steps": self.warmup_steps,
            "least_warmup_s": self.warmup_s,
            "least_measured_steps": self.measured_steps,
            "least_measured_s": self.measured_s,
            "event_steps": self.event_steps,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordingComparison:
    """So many rounds of two stretches of steps, one with recording and one without."""

    kind: ClassVar[str] = "recording_comparison"

    rounds: int = 60

    def __post_init__(self) -> None:
        at_least(1, rounds=self.rounds)

    def columns(self) -> dict[str, object]:
        """As columns of a table."""
        return {}
