"""What slowed GPUs down while a run was measured.  Pure.

Decides what becomes a warning: a GPU below the clocks that it could have makes a run slower than
others on the same hardware, which no timing tells.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ps_allreduce.record.gpu_samples import THROTTLING, GpuSample
from ps_allreduce.record.records import Sample

#: So many GPUs are named; a large job may have hundreds.
MOST_NAMED = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Throttled:
    """A GPU that was slowed down for one reason.

    Attributes:
        share: of the samples inside the window.
    """

    host: str
    identity: str
    share: float


def throttling_warnings(
    samples: Sequence[Sample],
    window: tuple[float, float],
    offsets: Mapping[str, float],
    used: frozenset[str],
) -> tuple[str, ...]:
    """One sentence for every reason for which GPUs were slowed down inside a window.

    Args:
        window: on the launcher's clock.
        offsets: seconds by which a host's clock is ahead of the launcher's, by its own name.
        used: identities of the GPUs that tasks of the run used; others do not matter.
    """
    seen: dict[tuple[str, str], list[GpuSample]] = {}
    for sample in samples:
        if window[0] <= sample.time - offsets.get(sample.host, 0.0) <= window[1]:
            for gpu in sample.gpus:
                if gpu.identity in used:
                    seen.setdefault((sample.host, gpu.identity), []).append(gpu)
    found = {reason: _throttled(reason, seen) for reason in THROTTLING}
    return tuple(_sentence(reason, gpus, len(seen)) for reason, gpus in found.items() if gpus)


def _throttled(reason: str, seen: Mapping[tuple[str, str], Sequence[GpuSample]]) -> list[Throttled]:
    """The GPUs that were slowed down for a reason, those most of the time first."""
    found = []
    for (host, identity), looks in seen.items():
        count = sum(reason in look.reasons for look in looks)
        if count:
            found.append(Throttled(host=host, identity=identity, share=count / len(looks)))
    return sorted(found, key=lambda gpu: -gpu.share)


def _sentence(reason: str, gpus: Sequence[Throttled], total: int) -> str:
    named = [f"{gpu.identity} of {gpu.host} in {gpu.share:.0%}" for gpu in gpus[:MOST_NAMED]]
    rest = [f"{len(gpus) - MOST_NAMED} more"] if len(gpus) > MOST_NAMED else []
    return (
        f"{len(gpus)} of {total} GPUs were slowed down by {THROTTLING[reason]} while measuring "
        f"({', '.join([*named, *rest])} of the samples)"
    )
