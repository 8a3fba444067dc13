"""The rates of emulated links that first looks chose, where nobody stated one.

`sweep.json` keeps them, because whoever reads a ratio must know that its links were chosen.  Which
rate is good is decided in `experiments.sweep.link_rate`.
"""

from __future__ import annotations

from collections.abc import Mapping

_QUESTION = "rate of the links for "


def rate_question(model: str) -> str:
    """The choice in `sweep.json` that holds the rate for a model, in bits per second."""
    return _QUESTION + model


def chosen_rates(choices: Mapping[str, object]) -> dict[str, float]:
    """Bits per second by the name of the model.

    Raises:
        ValueError: one is no number.
    """
    rates = {}
    for question, rate in choices.items():
        if question.startswith(_QUESTION):
            if not isinstance(rate, int | float):
                raise ValueError(f"{question} is no number but {rate!r}")
            rates[question.removeprefix(_QUESTION)] = float(rate)
    return rates
