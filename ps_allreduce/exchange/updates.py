"""The operations that apply a gradient, the same for all strategies.

Decides which slots stand beside a variable or bucket, and what is done to it.  Who holds it, and
who combines gradients, the strategies decide.  Settings are constants: all workers would have to
read a variable from one server.  All rules work element by element, so updating a bucket is
updating its tensors.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import tensorflow as tf

Shape = tuple[int, ...]


class UpdateRule(ABC):
    """How one variable follows from its gradient; variable and slots are resource handles."""

    @property
    def first_slot_value(self) -> float:
        """What all slots hold before the first step."""
        return 0.0

    @abstractmethod
    def slots(self, shape: Shape) -> tuple[Shape, ...]:
        """The shapes of the slots of a variable; all are float32."""

    def apply_rows(
        self, variable: tf.Tensor, slots: Sequence[tf.Tensor], gradient: tf.IndexedSlices
    ) -> tf.Operation:
        """Change rows of a variable and of its slots, in time of the rows of the gradient.

        The gradient has every row once.  Others do not change.

        Raises:
            NotImplementedError: the rule makes no sense without the other rows.
        """
        raise NotImplementedError(f"{type(self).__name__} changes rows that have no gradient")

    @abstractmethod
    def apply(
        self, variable: tf.Tensor, slots: Sequence[tf.Tensor], gradient: tf.Tensor
    ) -> tf.Operation:
        """Change variable and slots, and nothing of them before the gradient is there.

        A server is asked for its next update while it waits for the gradients of this one.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class SgdRule(UpdateRule):
    """`w -= learning_rate * g`."""

    learning_rate: float

    def slots(self, shape: Shape) -> tuple[Shape, ...]:
        """None."""
        return ()

    def apply(
        self, variable: tf.Tensor, slots: Sequence[tf.Tensor], gradient: tf.Tensor
    ) -> tf.Operation:
        """Change the variable."""
        return tf.raw_ops.ResourceApplyGradientDescent(
            var=variable, alpha=self.learning_rate, delta=gradient, use_locking=True
        )

    def apply_rows(
        self, variable: tf.Tensor, slots: Sequence[tf.Tensor], gradient: tf.IndexedSlices
    ) -> tf.Operation:
        """Change rows of the variable."""
        return tf.raw_ops.ResourceScatterSub(
            resource=variable,
            indices=gradient.indices,
            updates=self.learning_rate * gradient.values,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class MomentumRule(UpdateRule):
    """`a = momentum * a + g; w -= learning_rate * a`, or what Nesterov does instead.

    Keras keeps `-learning_rate * a`, which is the same training at a constant learning rate.
    """

    learning_rate: float
    momentum: float
    nesterov: bool = False

    def slots(self, shape: Shape) -> tuple[Shape, ...]:
        """The sum."""
        return (shape,)

    def apply(
        self, variable: tf.Tensor, slots: Sequence[tf.Tensor], gradient: tf.Tensor
    ) -> tf.Operation:
        """Change the sum, then the variable."""
        return tf.raw_ops.ResourceApplyMomentum(
            var=variable,
            accum=slots[0],
            lr=self.learning_rate,
            grad=gradient,
            momentum=self.momentum,
            use_locking=True,
            use_nesterov=self.nesterov,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class AdagradRule(UpdateRule):
    """`a += g * g; w -= learning_rate * g / sqrt(a + epsilon)`, as Keras writes it.

    TensorFlow adds its own epsilon to the root: here it is 0, and the sum begins with Keras'.
    """

    learning_rate: float
    initial_accumulator_value: float
    epsilon: float

    @property
    def first_slot_value(self) -> float:
        """What the sum of squares begins with."""
        return self.initial_accumulator_value + self.epsilon

    def slots(self, shape: Shape) -> tuple[Shape, ...]:
        """The sum of squares."""
        return (shape,)

    def apply(
        self, variable: tf.Tensor, slots: Sequence[tf.Tensor], gradient: tf.Tensor
    ) -> tf.Operation:
        """Change the sum, then the variable."""
        return tf.raw_ops.ResourceApplyAdagradV2(
            var=variable,
            accum=slots[0],
            lr=self.learning_rate,
            epsilon=0.0,
            grad=gradient,
            use_locking=True,
        )

    def apply_rows(
        self, variable: tf.Tensor, slots: Sequence[tf.Tensor], gradient: tf.IndexedSlices
    ) -> tf.Operation:
        """Change rows of the sum, then those of the variable."""
        return tf.raw_ops.ResourceSparseApplyAdagradV2(
            var=variable,
            accum=slots[0],
            lr=self.learning_rate,
            epsilon=0.0,
            grad=gradient.values,
            indices=gradient.indices,
            use_locking=True,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class AdamRule(UpdateRule):
    """Adam with the epsilon of Keras, which is added to the root of the uncorrected variance.

    The third slot counts steps.  Adding to it is one operation: asynchronous workers lose no step,
    as they would if each read the powers of beta, multiplied them and wrote them back.
    """

    learning_rate: float
    beta_1: float
    beta_2: float
    epsilon: float

    def slots(self, shape: Shape) -> tuple[Shape, ...]:
        """Mean, variance, and steps."""
        return shape, shape, ()

    def apply(
        self, variable: tf.Tensor, slots: Sequence[tf.Tensor], gradient: tf.Tensor
    ) -> tf.Operation:
        """Count the step; change mean and variance, then the variable."""
        means, variances, steps = slots
        step = _counted(steps, gradient)
        return tf.raw_ops.ResourceApplyAdam(
            var=variable,
            m=means,
            v=variances,
            beta1_power=tf.pow(self.beta_1, step),
            beta2_power=tf.pow(self.beta_2, step),
            lr=self.learning_rate,
            beta1=self.beta_1,
            beta2=self.beta_2,
            epsilon=self.epsilon,
            grad=gradient,
            use_locking=True,
        )

    def apply_rows(
        self, variable: tf.Tensor, slots: Sequence[tf.Tensor], gradient: tf.IndexedSlices
    ) -> tf.Operation:
        """Count the step; change rows of mean and variance, then those of the variable.

        Mean and variance of other rows wait for their next gradient, and do not decay meanwhile.
        Each change is one operation: what two asynchronous workers do to a row adds up.
        """
        means, variances, steps = slots
        rows, values = gradient.indices, gradient.values
        step = _counted(steps, values)
        mean = _moved(means, rows, self.beta_1, values)
        variance = _moved(variances, rows, self.beta_2, tf.square(values))
        rate = self.learning_rate * tf.sqrt(1.0 - self.beta_2**step) / (1.0 - self.beta_1**step)
        change = rate * mean / (tf.sqrt(variance) + self.epsilon)
        return tf.raw_ops.ResourceScatterSub(resource=variable, indices=rows, updates=change)


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmedUp(UpdateRule):
    """A rule whose learning rate grows by equal parts from zero, over so many updates.

    The last slot counts updates.  Momentum takes its whole sum at the present rate, where Keras
    takes each gradient in it at the rate of its own step.

    Attributes:
        counts: an update counts as so many, if it applies the mean of so many gradients.
    """

    rule: UpdateRule
    num_updates: int
    counts: int = 1

    @property
    def first_slot_value(self) -> float:
        """That of the rule, also of the count."""
        return self.rule.first_slot_value

    def slots(self, shape: Shape) -> tuple[Shape, ...]:
        """Those of the rule, and the count."""
        return *self.rule.slots(shape), ()

    def apply(
        self, variable: tf.Tensor, slots: Sequence[tf.Tensor], gradient: tf.Tensor
    ) -> tf.Operation:
        """Count the update, then do as the rule."""
        *own, count = slots
        return self._at(_counted(count, gradient, self.counts)).apply(variable, own, gradient)

    def apply_rows(
        self, variable: tf.Tensor, slots: Sequence[tf.Tensor], gradient: tf.IndexedSlices
    ) -> tf.Operation:
        """The same of rows."""
        *own, count = slots
        counted = _counted(count, gradient.values, self.counts)
        return self._at(counted).apply_rows(variable, own, gradient)

    def _at(self, count: tf.Tensor) -> UpdateRule:
        """The rule with its rate at an update."""
        rule: Any = self.rule
        share = tf.minimum(1.0, (count - self.first_slot_value) / self.num_updates)
        warm: UpdateRule = replace(rule, learning_rate=rule.learning_rate * share)
        return warm


def _counted(steps: tf.Tensor, gradient: tf.Tensor, counts: int = 1) -> tf.Tensor:
    """The number of this step, which counts as so many, once its gradient is there."""
    with tf.control_dependencies([gradient]):
        counted = tf.raw_ops.AssignAddVariableOp(resource=steps, value=tf.constant(float(counts)))
    with tf.control_dependencies([counted]):
        return tf.raw_ops.ReadVariableOp(resource=steps, dtype=tf.float32)


def _moved(average: tf.Tensor, rows: tf.Tensor, beta: float, values: tf.Tensor) -> tf.Tensor:
    """Rows of a moving average, once values were taken into it."""
    with tf.control_dependencies([values]):
        faded = tf.raw_ops.ResourceScatterMul(resource=average, indices=rows, updates=beta)
    with tf.control_dependencies([faded]):
        added = tf.raw_ops.ResourceScatterAdd(
            resource=average, indices=rows, updates=(1.0 - beta) * values
        )
    with tf.control_dependencies([added]):
        return tf.raw_ops.ResourceGather(resource=average, indices=rows, dtype=tf.float32)


@dataclass(frozen=True, slots=True, kw_only=True)
class AdamWRule(AdamRule):
    """`w -= learning_rate * weight_decay * w`, then Adam."""

    weight_decay: float

    def apply_rows(
        self, variable: tf.Tensor, slots: Sequence[tf.Tensor], gradient: tf.IndexedSlices
    ) -> tf.Operation:
        """Not to be had: all rows decay."""
        return UpdateRule.apply_rows(self, variable, slots, gradient)

    def apply(
        self, variable: tf.Tensor, slots: Sequence[tf.Tensor], gradient: tf.Tensor
    ) -> tf.Operation:
        """Decay, then do as Adam."""
        with tf.control_dependencies([gradient]):
            value = tf.raw_ops.ReadVariableOp(resource=variable, dtype=tf.float32)
        decayed = tf.raw_ops.ResourceApplyGradientDescent(
            var=variable,
            alpha=self.learning_rate * self.weight_decay,
            delta=value,
            use_locking=True,
        )
        with tf.control_dependencies([decayed]):
            return AdamRule.apply(self, variable, slots, gradient)
