"""What the points of a case share: workload, workers, profile, and how gradients are exchanged.

Decides what a report says about it; what sets points apart is in their labels (`settings`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from analysis.data.cases import Case
from analysis.data.settings import exchange_of
from ps_allreduce.point.strategies import Strategy


def what_was_run(case: Case) -> list[tuple[str, str]]:
    """Names and values, for a reader who would repeat it."""
    conditions = case.conditions
    load, profile, own = conditions.workload, conditions.profile, conditions.resources
    rows = [
        (
            "model",
            f"{load.model}, {load.image_size} x {load.image_size} x 3, {load.num_classes} classes",
        ),
        ("batch per worker", f"{load.batch_per_worker}, accumulation {load.accumulation}"),
        ("input", load.input),
        ("optimizer", f"SGD with momentum {load.momentum:g}, learning rate {load.learning_rate:g}"),
        (
            "worker",
            f"{own.device}, {own.cores_per_worker} core(s), {own.threads_per_worker} thread(s)",
        ),
        ("launcher", conditions.launcher),
        (
            "profile",
            f"{profile.name}: warm-up {profile.warmup_steps} steps and "
            f"{profile.warmup_s:g} s, measured {profile.measured_steps} steps and "
            f"{profile.measured_s:g} s, {profile.repetitions} repetitions",
        ),
    ]
    rows += _exchange_rows(case)
    if conditions.workers_per_host is not None:
        rows.append(("workers per host", str(conditions.workers_per_host)))
    if load.emulated is not None:
        emulated = f"forward {load.emulated.forward_s:g} s, backward {load.emulated.backward_s:g} s"
        rows.append(("compute", f"emulated: {emulated}"))
    return rows


def _exchange_rows(case: Case) -> list[tuple[str, str]]:
    """How each strategy exchanges gradients: what all its points share, and what labels tell."""
    by_strategy: dict[Strategy, list[dict[str, object]]] = {}
    for own in (point.experiment for point in case.points):
        if own.traits.communicates:
            layout = {} if own.layout is None else {"layout": own.layout}
            by_strategy.setdefault(own.strategy, []).append(exchange_of(own) | layout)
    return [
        (f"exchange of {strategy}", ", ".join(_shared(exchanges)))
        for strategy, exchanges in by_strategy.items()
    ]


def _shared(exchanges: Sequence[Mapping[str, object]]) -> list[str]:
    values: dict[str, list[object]] = {}
    for one in exchanges:
        for name, value in one.items():
            values.setdefault(name, []).append(value)
    return [f"{name} {_common_text(found)}" for name, found in values.items()]


def _common_text(values: Sequence[object]) -> str:
    if len(set(values)) > 1:
        return "as labelled"
    return "none" if values[0] is None else str(values[0])
