"""Whether rows of a model's tables can be exchanged alone, seen in one trace of a step.

Decides what is refused.  Ids that follow from trained weights or from other rows are not known
before these are there.  A table that is read as a whole (for a regularisation loss, or by a layer
that shares it) is needed whole.  Ids inside of a loop or a function cannot be taken out of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from ps_allreduce.exchange.lookups import TableLookups
from ps_allreduce.exchange.pure_model import PureModel, training_loss


class NotingScope(keras.StatelessScope):
    """Notes which variables are read, which of them nobody has given a value, and which change."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.read = set[int]()
        self.strays: dict[int, keras.Variable] = {}
        self.changed: dict[int, keras.Variable] = {}

    def add_update(self, update: tuple[keras.Variable, Any]) -> None:
        """What a layer assigns."""
        super().add_update(update)
        self.changed[id(update[0])] = update[0]

    def get_current_value(self, variable: keras.Variable) -> Any:
        """The value as the scope has it."""
        value = super().get_current_value(variable)
        self.read.add(id(variable))
        if value is None:
            self.strays[id(variable)] = variable
        return value


def only_whole(model: PureModel, structure: Any) -> str:
    """Why tables can only be exchanged whole, a phrase; empty where rows alone can.

    Args:
        structure: nested `tf.TensorSpec`s of a batch.
    """
    lookups = TableLookups(model)
    if not lookups.layers:
        return "it trains no keras.layers.Embedding, of which rows could be exchanged alone"
    read = set[int]()
    calls: list[tuple[int, tf.Tensor]] = []

    def trace(batch: Any, trained: tf.Tensor) -> tf.Tensor:
        values = [(v, tf.fill(v.shape, trained)) for v in model.trainable]
        values += [(v, tf.zeros(v.shape, v.dtype)) for v in model.others]

        def loss() -> None:
            _, scope = training_loss(model.keras_model, batch, values, NotingScope)
            read.update(scope.read)

        calls.extend(lookups.calls(loss, trained))
        return trained

    traced = tf.function(trace, autograph=False)
    try:
        graph = traced.get_concrete_function(structure, tf.TensorSpec([])).graph
    except (TypeError, ValueError) as error:  # ragged ids, for instance
        kind = type(error).__name__
        return f"a step cannot be traced without its tables ({kind}): look up dense tensors of ids"
    for layer in lookups.layers:
        if id(layer.embeddings) in read:
            return (
                f"the table {layer.embeddings.path} is used as a whole too (by a regularizer, or "
                "by a layer that shares it)"
            )
    return _about_calls(lookups, calls, graph)


def _about_calls(lookups: TableLookups, calls: Sequence[tuple[int, tf.Tensor]], graph: Any) -> str:
    """What is wrong with the ids."""
    if not calls:
        return "a step calls no keras.layers.Embedding"
    trained = graph.inputs[-1]
    for table, ids in calls:
        name = lookups.layers[table].name
        if ids.graph is not graph:
            return f"the layer {name} is called inside of a loop or a tf.function"
        if _follows_from(ids, trained):
            return f"the ids of the layer {name} follow from weights or rows that are trained"
    return ""


def _follows_from(tensor: tf.Tensor, source: tf.Tensor) -> bool:
    """Whether a tensor of a graph is computed from another one."""
    waiting, seen = [tensor.op], set[str]()
    while waiting:
        operation = waiting.pop()
        if operation is source.op:
            return True
        if operation.name not in seen:
            seen.add(operation.name)
            waiting.extend(each.op for each in operation.inputs)
    return False
