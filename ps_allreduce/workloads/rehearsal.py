"""One trace of a user's model, to see what the suite must know before it trains it.

Decides what a step may not use: resources of the process that traces it, which workers do not have.
It also makes what Keras makes at the first loss (a tracker for each of several losses), and finds
inputs that index the rows of an embedding.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

from ps_allreduce.errors import UserError
from ps_allreduce.exchange.drawn_examples import rows_indexed_by
from ps_allreduce.exchange.private_api import metric_variables
from ps_allreduce.exchange.pure_model import PureModel, training_loss
from ps_allreduce.workloads.user_code import blaming


class _Scope(keras.StatelessScope):
    """Notes variables that are read and that nobody has given a value."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.strays: dict[int, keras.Variable] = {}

    def get_current_value(self, variable: keras.Variable) -> Any:
        value = super().get_current_value(variable)
        if value is None:
            self.strays[id(variable)] = variable
        return value


def rehearse(model: PureModel, structure: Any, folder: Path) -> tuple[int, ...]:
    """Trace the loss of a batch, nested `tf.TensorSpec`s, once.

    Returns:
        For every input, how many rows the smallest table has that it indexes; 0 for none.

    Raises:
        UserError: it cannot be traced, or uses something that workers do not have.
    """
    strays: list[keras.Variable] = []

    def trace(batch: Any) -> tf.Tensor:
        values = [(v, tf.zeros(v.shape, v.dtype)) for v in (*model.trainable, *model.others)]
        loss, scope = training_loss(model.keras_model, batch, values, _Scope)
        strays.extend(scope.strays.values())
        return loss

    with blaming("one training step", folder):
        function = tf.function(trace, autograph=False).get_concrete_function(structure)
    _check_strays(model.keras_model, strays)
    _check_captures(function.graph)
    if function.output_shapes.rank != 0:
        raise UserError(
            f"the loss of {type(model.keras_model).__name__} has the shape "
            f"{function.output_shapes}: return one number from compute_loss."
        )
    inputs = function.graph.inputs[: len(tf.nest.flatten(structure[0]))]
    return tuple(rows_indexed_by(tensor) for tensor in inputs)


def _check_strays(model: keras.Model, strays: Sequence[keras.Variable]) -> None:
    """Trackers of losses were made in the scope; all others would change without being kept."""
    counted = {id(variable) for variable in metric_variables(model)}
    for variable in strays:
        if id(variable) not in counted:
            raise UserError(
                f"a step uses the variable {variable.path}, which is none of the model's: the "
                "suite cannot carry it from step to step (a stateful recurrent layer, or keras."
                "random without a SeedGenerator of a layer). Leave it out."
            )


def _check_captures(graph: Any) -> None:
    names = {id(variable.handle): variable.name for variable in graph.variables}
    for tensor, inside in graph.captures:
        if tensor.dtype not in (tf.resource, tf.variant):
            continue
        if id(tensor) in names:
            raise UserError(
                f"a step uses the tf.Variable {names[id(tensor)]}, which Keras does not know: make "
                "it with self.add_weight."
            )
        raise UserError(
            f"a step uses a table or another resource of TensorFlow at {_user_of(inside)}, which "
            "workers do not have (such as a StringLookup layer): prepare the data in dataset()."
        )


def _user_of(tensor: tf.Tensor) -> str:
    """The operation that takes a captured resource; its name holds those of the layers."""
    consumers = tensor.consumers()
    return str(consumers[0].name if consumers else tensor.name)
