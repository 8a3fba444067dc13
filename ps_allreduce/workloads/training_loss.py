"""A Keras model's loss as a pure function of its variables.

Decides how a model is called: as `keras.Model.fit` calls it, but inside a `keras.StatelessScope`.
In it every variable has the value that it is handed, and what layers assign is collected instead.
So the same code serves wherever values are kept.  Keras' `stateless_call` would lose regularisation
losses, and needs a `call` that takes `training`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import keras
import tensorflow as tf

from ps_allreduce.tf_internals.private_api import metric_variables

#: Values by variable.
Mapped = Sequence[tuple[keras.Variable, tf.Tensor]]

#: Makes the scope from its values.
ScopeOf = Callable[..., keras.StatelessScope]


def training_loss(
    model: keras.Model, batch: Any, values: Mapped, scope_of: ScopeOf = keras.StatelessScope
) -> tuple[tf.Tensor, keras.StatelessScope]:
    """The loss of a batch (inputs, targets[, weights]), float32, and the scope after it.

    Metrics count in the scope only, from zero in every step: nobody looks at them.
    """
    inputs, targets, weights = keras.utils.unpack_x_y_sample_weight(batch)
    counted = [(v, tf.zeros(v.shape, v.dtype)) for v in metric_variables(model)]
    with scope_of([*values, *counted], collect_losses=True) as scope:
        outputs = model(inputs, **_training(model.call))
        # By position, as Keras hands them over: an own compute_loss may call them as it likes.
        loss = model.compute_loss(
            inputs, targets, outputs, weights, **_training(model.compute_loss)
        )
    return tf.cast(loss, tf.float32), scope


def _training(function: Callable[..., Any]) -> dict[str, bool]:
    """Told to functions that want to know."""
    return {"training": True} if "training" in inspect.signature(function).parameters else {}
