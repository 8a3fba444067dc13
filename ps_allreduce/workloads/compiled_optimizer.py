"""The optimizer that a user's model was compiled with, as one of the suite's.

Decides which settings of Keras are followed, and says in a note each which are not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import keras
import numpy as np

from ps_allreduce.exchange.private_api import excludes_from_decay
from ps_allreduce.point.optimizers import Adam, AdamW, Momentum, Optimizer, Sgd

#: Settings that nobody follows, with what Keras has where they are not used.
NOT_FOLLOWED: Mapping[str, object] = {
    "clipnorm": None,
    "clipvalue": None,
    "global_clipnorm": None,
    "use_ema": False,
    "gradient_accumulation_steps": None,
    "loss_scale_factor": None,
    "amsgrad": False,
}


def optimizer_of(compiled: keras.optimizers.Optimizer) -> tuple[Optimizer, tuple[str, ...]]:
    """What the suite trains with instead, and what that leaves out, a sentence each.

    Raises:
        UserError: a setting makes no sense to the suite.
    """
    notes = []
    if isinstance(compiled, keras.optimizers.LossScaleOptimizer):
        notes.append("the loss is scaled by a constant, not by your LossScaleOptimizer")
        compiled = compiled.inner_optimizer
    followed = _RULES.get(type(compiled))
    if followed is None:
        notes.append(f"trained with SGD, not your {type(compiled).__name__}")
    rate = _rate_of(compiled)
    if not isinstance(compiled.learning_rate, keras.Variable):
        notes.append(f"the learning rate stays at {rate:g}, the first of your schedule")
    optimizer = (followed or _sgd_alone)(compiled, rate)
    notes += [
        _without(name, getattr(compiled, name))
        for name, unused in NOT_FOLLOWED.items()
        if getattr(compiled, name, unused) not in (unused, None)
    ]
    if isinstance(optimizer, AdamW) and excludes_from_decay(compiled):
        notes.append("all weights decay, also those that you excluded")
    if not isinstance(optimizer, AdamW) and compiled.weight_decay:
        notes.append(_without("weight_decay", compiled.weight_decay))
    return optimizer, tuple(notes)


def _without(name: str, value: object) -> str:
    return f"without your {name}" if value is True else f"without your {name} {value}"


def _rate_of(compiled: keras.optimizers.Optimizer) -> float:
    """The shortest number that is the same in float32, as users write it."""
    return float(str(np.float32(compiled.learning_rate)))


def _sgd(compiled: keras.optimizers.SGD, rate: float) -> Optimizer:
    if compiled.momentum == 0:
        return Sgd(learning_rate=rate)
    return Momentum(
        learning_rate=rate, momentum=compiled.momentum, nesterov=bool(compiled.nesterov)
    )


def _sgd_alone(compiled: keras.optimizers.Optimizer, rate: float) -> Optimizer:
    return Sgd(learning_rate=rate)


def _adam(compiled: keras.optimizers.Adam, rate: float) -> Optimizer:
    """Of Keras' Adam and AdamW, which differ by their default for the decay."""
    betas = {"beta_1": float(compiled.beta_1), "beta_2": float(compiled.beta_2)}
    epsilon = float(compiled.epsilon)
    if compiled.weight_decay is None:
        return Adam(learning_rate=rate, epsilon=epsilon, **betas)
    decay = float(compiled.weight_decay)
    return AdamW(learning_rate=rate, epsilon=epsilon, weight_decay=decay, **betas)


#: By the very class: a subclass may compute something else.
_RULES: Mapping[type[Any], Callable[[Any, float], Optimizer]] = {
    keras.optimizers.SGD: _sgd,
    keras.optimizers.Adam: _adam,
    keras.optimizers.AdamW: _adam,
}
