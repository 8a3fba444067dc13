"""A compiled Keras model as a pure function of its variables.

Decides how a model is called: as `keras.Model.fit` calls it, but inside a `keras.StatelessScope`.
In it every variable has the value that it is handed, and what layers assign is collected instead.
So the same code serves wherever values are kept.  Keras' `stateless_call` would lose regularisation
losses, and needs a `call` that takes `training`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import keras
import numpy as np
import numpy.typing as npt
import tensorflow as tf
from tensorflow.types.experimental import ConcreteFunction

from .private_api import all_layers, creation_number, metric_variables, without_strategy

T = TypeVar("T")

#: Values by variable.
Mapped = Sequence[tuple[keras.Variable, tf.Tensor]]

#: Makes the scope from its values.
ScopeOf = Callable[..., keras.StatelessScope]

#: Is told the outputs of a model.
See = Callable[[Any], None]

#: Multiplies the loss and divides the gradients, which are float32 again, where a layer computes in
#: float16.  float16 loses digits below 6e-5 and has no number below 6e-8.  It has none above 65504
#: either: a gradient of 64 or more becomes infinite.  A power of two rounds nothing.  bfloat16 has
#: the range of float32 and needs no scale.
FLOAT16_LOSS_SCALE = 1024.0


@dataclass(frozen=True, slots=True, eq=False)
class PureModel:
    """A built and compiled model with its variables in creation order.

    Round robin deals variables in the order of their creation, which Keras does not keep.

    Attributes:
        keras_model: that is trained.
        trainable: variables of Keras in creation order.
        others: all of its other variables (batch-norm statistics, seeds of dropout), in that order.
        created: all variables in that order.
    """

    keras_model: keras.Model
    trainable: tuple[keras.Variable, ...]
    others: tuple[keras.Variable, ...]
    created: tuple[keras.Variable, ...]

    @classmethod
    def of(cls, model: keras.Model) -> PureModel:
        """List the variables of a model that is built."""
        created = sorted(model.variables, key=lambda variable: creation_number(variable.value))
        trained = {id(variable) for variable in model.trainable_variables}
        return cls(
            keras_model=model,
            trainable=tuple(v for v in created if id(v) in trained),
            others=tuple(v for v in created if id(v) not in trained),
            created=tuple(created),
        )

    @classmethod
    def prepared(cls, model: keras.Model, structure: Any) -> PureModel:
        """A model that has made all its variables, also what Keras makes at the first loss.

        Args:
            structure: nested `tf.TensorSpec`s of a batch (inputs, targets[, weights]).
        """
        if not is_built(model):
            call_once(model, structure[0])
        prepared = cls.of(model)
        prepared.traced_loss(structure)
        return prepared

    def traced_loss(self, structure: Any) -> ConcreteFunction:
        """The loss of a batch, nested `tf.TensorSpec`s, with zeros as variables."""

        def trace(batch: Any) -> tf.Tensor:
            values, state = (
                [tf.zeros(v.shape, v.dtype) for v in variables]
                for variables in (self.trainable, self.others)
            )
            return self.loss(batch, values, state)[0]

        return tf.function(trace, autograph=False).get_concrete_function(structure)

    def values(self) -> list[npt.NDArray[np.float32]]:
        """Present values of the trainable variables."""
        return [np.asarray(variable) for variable in self.trainable]

    def state(self) -> list[npt.NDArray[Any]]:
        """Present values of the others."""
        return [np.asarray(variable) for variable in self.others]

    def loss(
        self,
        batch: Any,
        values: Sequence[tf.Tensor],
        state: Sequence[tf.Tensor],
        *,
        training: bool = True,
        see: See = lambda outputs: None,
    ) -> tuple[tf.Tensor, list[tf.Tensor]]:
        """The loss of a batch (inputs, targets[, weights]), float32, and the new state.

        Args:
            training: as layers are told; they compute as in inference where it is false.
            see: is told the outputs.
        """
        mapped = [
            *zip(self.trainable, values, strict=True),
            *zip(self.others, state, strict=True),
        ]
        loss, scope = training_loss(self.keras_model, batch, mapped, training=training, see=see)
        changed = [tf.convert_to_tensor(scope.get_current_value(v)) for v in self.others]
        return loss, changed

    def gradients(
        self,
        tape: tf.GradientTape,
        loss: tf.Tensor,
        values: Sequence[tf.Tensor],
        note: Callable[[str], None] = lambda _: None,
        sparse: Callable[[keras.Variable, tf.IndexedSlices], None] = lambda *_: None,
        rows: Sequence[tf.Tensor] = (),
    ) -> list[tf.Tensor]:
        """Of the loss, each in the shape of its value, which the tape has watched.

        Args:
            rows: of tables, whose gradients come last.
            note: told in a sentence what had to be done for that.
            sparse: told of every gradient that was sparse.
        """
        scale = FLOAT16_LOSS_SCALE if "float16" in self.computes_in else None
        scaled = None if scale is None else tf.constant(scale)
        found = tape.gradient(loss, [*values, *rows], output_gradients=scaled)
        whole, of_rows = found[: len(values)], found[len(values) :]
        for variable, gradient in zip(self.trainable, whole, strict=True):
            if isinstance(gradient, tf.IndexedSlices):
                sparse(variable, gradient)
        dense = [
            _dense(variable, gradient, value, note)
            for variable, gradient, value in zip(self.trainable, whole, values, strict=True)
        ]
        dense += [tf.convert_to_tensor(gradient) for gradient in of_rows]
        return dense if scale is None else [gradient / scale for gradient in dense]

    @property
    def computes_in(self) -> frozenset[str]:
        """The number formats that layers compute in."""
        return frozenset(str(layer.compute_dtype) for layer in all_layers(self.keras_model))


def _dense(
    variable: keras.Variable,
    gradient: tf.Tensor | tf.IndexedSlices | None,
    value: tf.Tensor,
    note: Callable[[str], None],
) -> tf.Tensor:
    if gradient is None:
        note(f"the loss does not depend on {variable.path}: its gradient is zero")
        return tf.zeros_like(value)
    if isinstance(gradient, tf.IndexedSlices):
        note(f"the gradient of {variable.path} is sparse and was made dense")
    return tf.convert_to_tensor(gradient)


def training_loss(
    model: keras.Model,
    batch: Any,
    values: Mapped,
    scope_of: ScopeOf = keras.StatelessScope,
    *,
    training: bool = True,
    see: See = lambda outputs: None,
) -> tuple[tf.Tensor, keras.StatelessScope]:
    """The loss of a batch (inputs, targets[, weights]), float32, and the scope after it.

    Metrics count in the scope only, from zero in every step: nobody looks at them.
    """
    inputs, targets, weights = keras.utils.unpack_x_y_sample_weight(batch)
    counted = [(v, tf.zeros(v.shape, v.dtype)) for v in metric_variables(model)]
    with (
        # Operations at the root of a graph may not be called `_something`; a user's class may.
        tf.name_scope("step"),
        without_strategy(),
        scope_of([*values, *counted], collect_losses=True) as scope,
    ):
        outputs = model(inputs, **told_training(model.call, training))
        see(outputs)
        # By position, as Keras hands them over: an own compute_loss may call them as it likes.
        loss = model.compute_loss(
            inputs, targets, outputs, weights, **told_training(model.compute_loss, training)
        )
    return tf.cast(loss, tf.float32), scope


def accuracy_of(outputs: Any, targets: Any) -> tf.Tensor:
    """The share of class numbers that are those of the largest output.

    Not a number where targets are no class numbers.
    """
    are_tensors = tf.is_tensor(outputs) and tf.is_tensor(targets) and targets.dtype.is_integer
    if not are_tensors or targets.shape.rank != outputs.shape.rank - 1:
        return tf.constant(float("nan"))
    is_told = tf.argmax(outputs, -1) == tf.cast(targets, tf.int64)
    return tf.reduce_mean(tf.cast(is_told, tf.float32))


def told_training(function: Callable[..., Any], training: bool = True) -> dict[str, bool]:
    """What functions are told that want to know whether they train."""
    return wanted(function, training=training)


def wanted(function: Callable[..., Any], **values: T) -> dict[str, T]:
    """Those of some values that a function has arguments for."""
    names = inspect.signature(function).parameters
    return {name: value for name, value in values.items() if name in names}


def is_built(model: keras.Model) -> bool:
    """Layers that are only made when they are called count too."""
    return bool(model.built) and all(layer.built for layer in model.layers)


def call_once(model: keras.Model, inputs: Any) -> None:
    """Have a model make its variables; `inputs` are nested `tf.TensorSpec`s of a batch."""
    model(
        tf.nest.map_structure(
            lambda spec: tf.zeros([size or 1 for size in spec.shape], spec.dtype), inputs
        )
    )
