"""How weights follow from gradients: the five rules that every strategy applies in the same way.

Decides which settings make sense, with Keras' names and defaults, and what becomes of a learning
rate with more workers and in the first steps; else it is constant.
The operations are those of `exchange.updates`.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, ClassVar, cast

from ps_allreduce.errors import UserError, at_least
from ps_allreduce.serialization import Columns


class OnRows(StrEnum):
    """What a rule makes of the rows that a step has looked up, and of no others.

    `same`: the weights of whole tables, because a row without a gradient stays as it is.
    `lazy`: other weights, as PyTorch's `SparseAdam` and TensorFlow Addons' `LazyAdam` train them
    too: a row's averages change with its gradients only.
    """

    SAME = "same"
    LAZY = "lazy"


class Rule(Columns):
    """What all rules check: learning rates are above 0, shares are below 1.

    Attributes:
        applied_by: the class in `exchange.updates`; its settings have the same names.
        keras_class: the same in `keras.optimizers`.
        on_rows: what it makes of rows alone; None where that is no training that anybody uses.
    """

    __slots__ = ()

    kind_column: ClassVar[str | None] = "optimizer"
    applied_by: ClassVar[str]
    keras_class: ClassVar[str]
    on_rows: ClassVar[OnRows | None] = None

    def __post_init__(self) -> None:
        for name, number in asdict(cast(Any, self)).items():
            if name == "learning_rate" and not 0 < number < float("inf"):
                raise UserError(f"{name} must be above 0, got {number:g}.")
            if name in ("momentum", "beta_1", "beta_2") and not 0 <= number < 1:
                raise UserError(f"{name} must be at least 0 and below 1, got {number:g}.")
            if name in ("epsilon", "weight_decay", "initial_accumulator_value"):
                at_least(0, **{name: number})


@dataclass(frozen=True, slots=True, kw_only=True)
class Sgd(Rule):
    """Stochastic gradient descent: `w -= learning_rate * g`."""

    kind: ClassVar[str] = "sgd"
    applied_by: ClassVar[str] = "SgdRule"
    keras_class: ClassVar[str] = "SGD"
    on_rows: ClassVar[OnRows | None] = OnRows.SAME

    learning_rate: float = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class Momentum(Rule):
    """Stochastic gradient descent with momentum: `a = momentum * a + g; w -= learning_rate * a`.

    Attributes:
        nesterov: `w -= learning_rate * (g + momentum * a)` instead.
    """

    kind: ClassVar[str] = "sgd_momentum"
    applied_by: ClassVar[str] = "MomentumRule"
    keras_class: ClassVar[str] = "SGD"

    learning_rate: float = 0.01
    momentum: float = 0.9
    nesterov: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Adagrad(Rule):
    """Adagrad (Duchi et al., "Adaptive Subgradient Methods", JMLR 12, 2011).

    `a += g * g; w -= learning_rate * g / sqrt(a + epsilon)`, where a is 0.1 at first.
    """

    kind: ClassVar[str] = "adagrad"
    applied_by: ClassVar[str] = "AdagradRule"
    keras_class: ClassVar[str] = "Adagrad"
    on_rows: ClassVar[OnRows | None] = OnRows.SAME

    learning_rate: float = 0.001
    initial_accumulator_value: float = 0.1
    epsilon: float = 1e-7


@dataclass(frozen=True, slots=True, kw_only=True)
class Adam(Rule):
    """Adam (Kingma and Ba, "Adam: A Method for Stochastic Optimization", ICLR 2015)."""

    kind: ClassVar[str] = "adam"
    applied_by: ClassVar[str] = "AdamRule"
    keras_class: ClassVar[str] = "Adam"
    on_rows: ClassVar[OnRows | None] = OnRows.LAZY

    learning_rate: float = 0.001
    beta_1: float = 0.9
    beta_2: float = 0.999
    epsilon: float = 1e-7


@dataclass(frozen=True, slots=True, kw_only=True)
class AdamW(Rule):
    """Adam with decoupled weight decay (Loshchilov and Hutter, ICLR 2019), as Keras writes it.

    `w -= learning_rate * weight_decay * w`, then the step of Adam.
    """

    kind: ClassVar[str] = "adamw"
    applied_by: ClassVar[str] = "AdamWRule"
    keras_class: ClassVar[str] = "AdamW"

    learning_rate: float = 0.001
    beta_1: float = 0.9
    beta_2: float = 0.999
    epsilon: float = 1e-7
    weight_decay: float = 0.004


Optimizer = Sgd | Momentum | Adagrad | Adam | AdamW


@dataclass(frozen=True, slots=True, kw_only=True)
class RateSchedule(Columns):
    """What becomes of a learning rate (Goyal et al., "Accurate, Large Minibatch SGD", 2017).

    Attributes:
        linear_scaling: it is taken times the workers whose mean gradient an update applies: not
            where each one's is applied on its own.
        rate_warmup_steps: of every worker, in which it grows by equal parts from zero.
    """

    linear_scaling: bool = False
    rate_warmup_steps: int = 0

    def __post_init__(self) -> None:
        at_least(0, rate_warmup_steps=self.rate_warmup_steps)


def optimizer_text(optimizer: Optimizer) -> str:
    """As `adam, learning rate 0.001, beta 1 0.9 ...`."""
    stated = (f"{name.replace('_', ' ')} {value:g}" for name, value in asdict(optimizer).items())
    return ", ".join([optimizer.kind, *stated])
