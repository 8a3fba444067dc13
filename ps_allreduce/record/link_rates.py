"""The rates of emulated links and the batches that first looks chose, where nobody stated them.

`sweep.json` keeps them, because whoever reads a ratio must know that they were chosen.  Which are
good is decided in `experiments.sweep.link_rate`.
"""

from __future__ import annotations

from collections.abc import Mapping

_RATE = "rate of the links for "
_BATCH = "batch per worker of "


def rate_question(model: str) -> str:
    """The choice in `sweep.json` that holds the rate for a model, in bits per second."""
    return _RATE + model


def batch_question(model: str) -> str:
    """The choice in `sweep.json` that holds the batch of each worker for a model."""
    return _BATCH + model


def chosen_rates(choices: Mapping[str, object]) -> dict[str, float]:
    """Bits per second by the name of the model.

    Raises:
        ValueError: one is no number.
    """
    return _by_model(choices, _RATE)


def chosen_batches(choices: Mapping[str, object]) -> dict[str, int]:
    """Examples of a worker's batch by the name of the model.

    Raises:
        ValueError: one is no number.
    """
    return {model: int(batch) for model, batch in _by_model(choices, _BATCH).items()}


def _by_model(choices: Mapping[str, object], begin: str) -> dict[str, float]:
    """The answers to the questions that begin so."""
    found = {}
    for question, answer in choices.items():
        if question.startswith(begin):
            if not isinstance(answer, int | float):
                raise ValueError(f"{question} is no number but {answer!r}")
            found[question.removeprefix(begin)] = float(answer)
    return found
