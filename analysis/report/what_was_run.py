"""What the points of a case share: workload, workers, lengths, and how gradients are exchanged.

Decides what a report says about it; what sets points apart is in their labels (`data.setting`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import pandas as pd

from analysis.data.cases import Case
from analysis.data.exchange import exchange_of

#: Columns of the exchange that have a shorter name here.
_SHORT = {"gradients_on_wire": "gradients"}

Items = list[tuple[str, str]]


def what_was_run(case: Case) -> Items:
    """Names and values, for a reader who would repeat it."""
    own = case.conditions
    items = [
        ("model", _model_text(case)),
        ("batch per worker", f"{own['batch_per_worker']}, accumulation {own['accumulation']}"),
        ("input", _shared(case.attempts["input"])),
        (
            "optimizer",
            f"SGD with momentum {own['momentum']:g}, learning rate {own['learning_rate']:g}",
        ),
        (
            "worker",
            f"{own['device']}, {own['cores_per_worker']} core(s), "
            f"{own['threads_per_worker']} thread(s)",
        ),
        ("launcher", own["launcher"]),
        ("profile", _profile_text(case)),
    ]
    return items + _exchange_items(case) + _further_items(case)


def _model_text(case: Case) -> str:
    own = case.conditions
    if own["image_size"] is None:
        return str(own["model"])
    size = own["image_size"]
    return f"{own['model']}, {size} x {size} x 3, {own['num_classes']} classes"


def _profile_text(case: Case) -> str:
    """What a run measures other than throughput has no lengths to state."""
    own = case.conditions
    lengths = ""
    if own["least_measured_steps"] is not None:
        lengths = (
            f": warm-up {own['least_warmup_steps']} steps and {own['least_warmup_s']:g} s, "
            f"measured {own['least_measured_steps']} steps and {own['least_measured_s']:g} s"
        )
    name, launches = _shared(case.attempts["profile"]), case.attempts["repetition"].nunique()
    return f"{name}{lengths}, {launches} repetitions"


def _shared(values: pd.Series) -> str:
    return ", ".join(values.dropna().unique())


def _further_items(case: Case) -> Items:
    own, items = case.conditions, []
    if own["asked_workers_per_host"] is not None:
        items.append(("workers per host", str(own["asked_workers_per_host"])))
    if case.emulated:
        forward_s, backward_s = own["emulated_forward_s"], own["emulated_backward_s"]
        text = f"emulated: forward {forward_s:g} s, backward {backward_s:g} s"
        items.append(("compute", text))
    return items


def _exchange_items(case: Case) -> Items:
    """How each strategy exchanges gradients: what all its points share, and what labels tell."""
    by_strategy: dict[str, list[dict[str, object]]] = {}
    for point in case.points:
        if point.setting.traits.communicates():
            layout = point.asked["layout"]
            settings = exchange_of(point.asked) | ({} if layout is None else {"layout": layout})
            by_strategy.setdefault(point.setting.strategy, []).append(settings)
    return [(f"exchange of {name}", _shared_text(each)) for name, each in by_strategy.items()]


def _shared_text(settings: Sequence[Mapping[str, object]]) -> str:
    names = dict.fromkeys(name for each in settings for name in each)
    values = {name: {each[name] for each in settings if name in each} for name in names}
    return ", ".join(f"{_SHORT.get(name, name)} {_text(all_)}" for name, all_ in values.items())


def _text(values: Collection[object]) -> str:
    (value, *others) = values
    return "as labelled" if others else "none" if value is None else str(value)
