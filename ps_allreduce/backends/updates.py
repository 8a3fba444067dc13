"""The operations that apply a gradient, the same for all strategies.

Decides which slots stand beside a variable or bucket, and what is done to it.  Who holds it, and
who combines gradients, the strategies decide.  Settings are constants: all workers would have to
read a variable from one server.  All rules work element by element, so updating a bucket is
updating its tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import tensorflow as tf

from ps_allreduce.point.optimizers import Adam, AdamW, Momentum, Optimizer, Sgd

Shape = tuple[int, ...]


class UpdateRule(Protocol):
    """How one variable follows from its gradient; variable and slots are resource handles."""

    def slots(self, shape: Shape) -> tuple[Shape, ...]:
        """The shapes of the slots of a variable; all are float32 and begin with zeros."""

    def apply(
        self, variable: tf.Tensor, slots: Sequence[tf.Tensor], gradient: tf.Tensor
    ) -> tf.Operation:
        """Change variable and slots."""


@dataclass(frozen=True, slots=True)
class _SgdRule:
    """`w -= learning_rate * g`."""

    settings: Sgd

    def slots(self, shape: Shape) -> tuple[Shape, ...]:
        return ()

    def apply(
        self, variable: tf.Tensor, slots: Sequence[tf.Tensor], gradient: tf.Tensor
    ) -> tf.Operation:
        return tf.raw_ops.ResourceApplyGradientDescent(
            var=variable, alpha=self.settings.learning_rate, delta=gradient, use_locking=True
        )


@dataclass(frozen=True, slots=True)
class _MomentumRule:
    """`a = momentum * a + g; w -= learning_rate * a`, or what Nesterov does instead.

    Keras keeps `-learning_rate * a`, which is the same training at a constant learning rate.
    """

    settings: Momentum

    def slots(self, shape: Shape) -> tuple[Shape, ...]:
        return (shape,)

    def apply(
        self, variable: tf.Tensor, slots: Sequence[tf.Tensor], gradient: tf.Tensor
    ) -> tf.Operation:
        return tf.raw_ops.ResourceApplyMomentum(
            var=variable,
            accum=slots[0],
            lr=self.settings.learning_rate,
            grad=gradient,
            momentum=self.settings.momentum,
            use_locking=True,
            use_nesterov=self.settings.nesterov,
        )


@dataclass(frozen=True, slots=True)
class _AdamRule:
    """Adam with the epsilon of Keras, which is added to the root of the uncorrected variance.

    The third slot counts steps.  Adding to it is one operation: asynchronous workers lose no step,
    as they would if each read the powers of beta, multiplied them and wrote them back.
    """

    settings: Adam | AdamW

    def slots(self, shape: Shape) -> tuple[Shape, ...]:
        return shape, shape, ()

    def apply(
        self, variable: tf.Tensor, slots: Sequence[tf.Tensor], gradient: tf.Tensor
    ) -> tf.Operation:
        means, variances, steps = slots
        settings = self.settings
        with tf.control_dependencies(
            [tf.raw_ops.AssignAddVariableOp(resource=steps, value=tf.constant(1.0))]
        ):
            step = tf.raw_ops.ReadVariableOp(resource=steps, dtype=tf.float32)
        return tf.raw_ops.ResourceApplyAdam(
            var=variable,
            m=means,
            v=variances,
            beta1_power=tf.pow(settings.beta_1, step),
            beta2_power=tf.pow(settings.beta_2, step),
            lr=settings.learning_rate,
            beta1=settings.beta_1,
            beta2=settings.beta_2,
            epsilon=settings.epsilon,
            grad=gradient,
            use_locking=True,
        )


@dataclass(frozen=True, slots=True)
class _AdamWRule:
    """`w -= learning_rate * weight_decay * w`, then Adam."""

    settings: AdamW

    def slots(self, shape: Shape) -> tuple[Shape, ...]:
        return _AdamRule(self.settings).slots(shape)

    def apply(
        self, variable: tf.Tensor, slots: Sequence[tf.Tensor], gradient: tf.Tensor
    ) -> tf.Operation:
        settings = self.settings
        decayed = tf.raw_ops.ResourceApplyGradientDescent(
            var=variable,
            alpha=settings.learning_rate * settings.weight_decay,
            delta=tf.raw_ops.ReadVariableOp(resource=variable, dtype=tf.float32),
            use_locking=True,
        )
        with tf.control_dependencies([decayed]):
            return _AdamRule(settings).apply(variable, slots, gradient)


_RULES: Mapping[type[Any], Callable[[Any], UpdateRule]] = {
    Sgd: _SgdRule,
    Momentum: _MomentumRule,
    Adam: _AdamRule,
    AdamW: _AdamWRule,
}


def update_rule(optimizer: Optimizer) -> UpdateRule:
    """The rule of an optimizer."""
    return _RULES[type(optimizer)](optimizer)
