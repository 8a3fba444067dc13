"""How far the axes of a study reach on a machine or cluster.  Pure.

Decides which numbers of workers are tried where nobody states them, and how many cores each has.
"""

from __future__ import annotations

from dataclasses import dataclass

from experiments.sweep.profiles import STANDARD, Profile
from launchers.protocol import Capacity
from ps_allreduce.errors import UserError
from ps_allreduce.point.spread import Spread

#: On one machine more would only share its memory.
MOST_ON_ONE_HOST = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """How far the axes of a study reach.

    Attributes:
        workers: numbers of workers, ascending.
        cores_per_worker: the same for every point, so that efficiency has one base.
    """

    workers: tuple[int, ...]
    cores_per_worker: int


def default_workers(profile: Profile, spread: Spread | None, capacity: Capacity) -> tuple[int, ...]:
    """Numbers of workers where none are stated.

    On hosts they are doubled from one to as many as fit; on one machine there are 1 and 2, and in
    the profile `standard` they are doubled for as long as each keeps two cores.

    Args:
        spread: None on one machine.

    Raises:
        UserError: the machine has one core, and a comparison needs two.
    """
    if spread is not None:
        return _doubled(capacity.num_hosts * spread.workers_per_host)
    cores = capacity.cores_per_host
    if cores < 2:
        raise UserError(
            "this machine offers 1 core, but a comparison needs 2 workers with a core each."
        )
    thorough = profile.name == STANDARD
    return _doubled(max(2, min(MOST_ON_ONE_HOST, cores // 2)) if thorough else 2)


def default_cores(workers: tuple[int, ...], spread: Spread | None, capacity: Capacity) -> int:
    """Cores of every worker, so that as many workers as ever share a host do not share cores."""
    together = max(workers) if spread is None else spread.workers_per_host
    return max(1, capacity.cores_per_host // together)


def _doubled(most: int) -> tuple[int, ...]:
    workers = [1]
    while workers[-1] * 2 <= most:
        workers.append(workers[-1] * 2)
    return tuple(workers)
