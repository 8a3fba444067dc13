"""Short experiments for real runs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ps_allreduce.point.experiment import Collective, Experiment, Profile, server_settings
from ps_allreduce.point.placement import DEFAULT_SPLIT_BYTES, Policy
from ps_allreduce.point.spread import LayoutKind
from ps_allreduce.point.strategies import TRAITS, Strategy
from ps_allreduce.point.wire import Wire
from ps_allreduce.point.workload import Workload

#: A run makes exactly 1 + 1 + 3 + 6 steps: first, warm-up, settling, measured.
BRIEF = Profile(
    name="brief", warmup_steps=1, warmup_s=0.0, measured_steps=6, repetitions=1, deadline_s=90.0
)

#: Longer than anybody waits: for runs that something else ends.
LONG = replace(BRIEF, measured_s=60.0, deadline_s=90.0)


def point(
    strategy: Strategy,
    workers: int = 1,
    *,
    num_ps: int = 2,
    policy: Policy = Policy.ROUND_ROBIN,
    split_bytes: int = DEFAULT_SPLIT_BYTES,
    bytes_per_pack: int | None = None,
    wire: Wire | None = None,
    profile: Profile = BRIEF,
    workload: Workload | None = None,
) -> Experiment:
    """An experiment with the settings that its strategy needs; all-reduce in buckets."""
    settings: dict[str, Any] = {}
    if TRAITS[strategy].uses_servers:
        settings = server_settings(num_ps, policy, LayoutKind.COLOCATED, split_bytes)
    if TRAITS[strategy].uses_collective:
        settings = {"collective": Collective.RING, "bytes_per_pack": bytes_per_pack}
    return Experiment(
        strategy=strategy,
        num_workers=workers,
        wire=wire or Wire(),
        workload=workload or Workload(),
        profile=profile,
        **settings,
    )
