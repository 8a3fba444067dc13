"""What was run, as names and values: for a reader who would repeat it.

Decides what is said of what the points of a case share: model, workers, lengths, and how gradients
are exchanged.  What sets points apart is in their labels (`data.setting`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import pandas as pd

from analysis.data.cases import Case
from analysis.data.setting import exchange_of
from analysis.wording import capital
from ps_allreduce.point.inputs.data_set import Target
from ps_allreduce.point.models.trained import OwnModel
from ps_allreduce.point.optimizers import optimizer_text
from ps_allreduce.point.workload import Scaling
from ps_allreduce.record.variables import MADE_DENSE

#: Columns of the exchange that have a shorter name here.
_SHORT = {"gradients_on_wire": "gradients"}

#: So many notes about the user's own model stand in a headline.
MOST_NOTES = 2

Items = list[tuple[str, str]]


#: What the batch is a batch of, by how the workload scales.
_BATCH = {Scaling.WEAK: "batch per worker", Scaling.STRONG: "batch of all workers together"}


def what_was_run(case: Case) -> Items:
    """Names and values, for a reader who would repeat it."""
    own = case.conditions
    items = [
        ("model", _model_text(case)),
        *_model_items(case),
        (_BATCH[own["scaling"]], f"{own['batch_per_worker']}, accumulation {own['accumulation']}"),
        ("input", _shared(case.attempts["input"])),
        ("optimizer", optimizer_text(case.points[0].experiment.workload.optimizer)),
        (
            "worker",
            f"{own['device']}, {own['cores_per_worker']} core(s), {_threads_text(case)}",
        ),
        ("launcher", own["launcher"]),
        ("profile", _profile_text(case)),
    ]
    return items + _exchange_items(case) + _further_items(case)


def _threads_text(case: Case) -> str:
    """Of a worker; by strategy where they differ."""
    by_strategy: dict[str, set[int]] = {}
    for point in case.points:
        by_strategy.setdefault(point.setting.strategy, set()).add(point.threads)
    numbers = {name: _numbers_text(each) for name, each in by_strategy.items()}
    if len(set(numbers.values())) == 1:
        return f"{next(iter(numbers.values()))} thread(s)"
    return "threads " + ", ".join(f"{name} {text}" for name, text in numbers.items())


def _numbers_text(numbers: Collection[int]) -> str:
    return " or ".join(map(str, sorted(numbers)))


def notes_line(case: Case) -> str:
    """What is not done as the user's own model asks for, the first of it, in a sentence.

    Sparse gradients have a sentence of their own.
    """
    notes = [note for note in _notes(case) if MADE_DENSE not in note]
    shown = "; ".join(notes[:MOST_NOTES])
    more = f"; {len(notes) - MOST_NOTES} more in the report" if len(notes) > MOST_NOTES else ""
    return f"{capital(shown)}{more}." if notes else ""


def _notes(case: Case) -> tuple[str, ...]:
    model = case.points[0].experiment.workload.model
    return model.notes if isinstance(model, OwnModel) else ()


def _model_items(case: Case) -> Items:
    """Of the user's own model: the digest of its files, arguments, and what is done otherwise."""
    own = case.conditions
    named = {
        "its files": own["model_digest"],
        "its arguments": own["model_arguments"],
        "not as it asks": "; ".join(_notes(case)) or None,
    }
    return [(name, str(value)) for name, value in named.items() if value is not None]


def _model_text(case: Case) -> str:
    own = case.conditions
    parts = [str(own["model"])]
    if own["image_size"] is not None:
        size = own["image_size"]
        channels = "" if own["channels"] is None else f" x {own['channels']}"
        parts.append(f"{size} x {size}{channels}{_learned_text(own)}")
    if case.tokens_per_example is not None:
        parts.append(f"{case.tokens_per_example} tokens in an example")
    if own["vocabulary"] is not None:
        parts.append(f"vocabulary {own['vocabulary']}")
    return ", ".join(parts)


def _learned_text(own: Mapping[str, Any]) -> str:
    """What is learned of an image; nothing where weights alone are sent."""
    if own["target"] is None:
        return ""
    if own["target"] == Target.VALUE:
        return ", a value"
    return f", {own['num_classes']} {'labels' if own['target'] == Target.LABELS else 'classes'}"


def _profile_text(case: Case) -> str:
    """What a run measures other than throughput has no lengths to state."""
    own = case.conditions
    lengths = ""
    if own["least_measured_steps"] is not None:
        most = ""
        if own["most_warmup_steps"] is not None:
            most = (
                f"over after {own['most_warmup_steps']} steps and {own['most_warmup_s']:g} s in "
                "any case, "
            )
        lengths = (
            f": {own['warmup']} warm-up, at least {own['least_warmup_steps']} steps and "
            f"{own['least_warmup_s']:g} s, {most}"
            f"measured {own['least_measured_steps']} steps and {own['least_measured_s']:g} s"
        )
    return f"{_shared(case.attempts['profile'])}{lengths}, {_repetitions_text(case)}"


def _repetitions_text(case: Case) -> str:
    """Points of the main comparison may have more than the others."""
    made = [point.attempts["repetition"].nunique() for point in case.points]
    fewest, most = min(made), max(made)
    more = f" to {most}" if most > fewest else ""
    return f"{fewest}{more} repetition{'s' * (most != 1)} of a point"


def _shared(values: pd.Series) -> str:
    return ", ".join(values.dropna().unique())


def _further_items(case: Case) -> Items:
    own, items = case.conditions, []
    if own["asked_workers_per_host"] is not None:
        items.append(("workers per host", str(own["asked_workers_per_host"])))
    if case.emulated:
        forward_s, backward_s = own["emulated_forward_s"], own["emulated_backward_s"]
        text = f"emulated: forward {forward_s:g} s, backward {backward_s:g} s"
        items.append(("compute", ", ".join(filter(None, [text, differences_text(own)]))))
    return items


def differences_text(own: Mapping[str, Any]) -> str:
    """How emulated workers differ from what is stated for all of them; empty if they do not."""
    named = {"factors of workers": own["emulated_factors"], "jitter": own["emulated_jitter"]}
    return ", ".join(f"{name} {text}" for name, text in named.items() if text is not None)


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
