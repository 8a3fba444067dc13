"""What studies of tests are to cover."""

from __future__ import annotations

from typing import Any

from experiments.studies.scope import Scale, Scope
from ps_allreduce.point.measurement import Measurement
from ps_allreduce.point.workload import Workload
from tests.fakes import TWO_LAYERS


def make_scope(workers: tuple[int, ...] = (1, 2), **changes: Any) -> Scope:
    """One workload on this machine."""
    settings: dict[str, Any] = {
        "workloads": (Workload(),),
        "measurement": Measurement(),
        "scale": Scale(workers=workers, cores_per_worker=2),
        "launcher": "local",
        "describe": lambda _: TWO_LAYERS,
    }
    return Scope(**(settings | changes))
