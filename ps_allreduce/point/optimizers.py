"""How weights follow from gradients: the four rules that every strategy applies in the same way.

Decides which settings make sense, with Keras' names and defaults.  Learning rates are constant.
The operations are those of `backends.updates`.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import ClassVar

from ps_allreduce.errors import UserError, at_least


def _check_rate(learning_rate: float) -> None:
    if not 0 < learning_rate < float("inf"):
        raise UserError(f"learning_rate must be above 0, got {learning_rate:g}.")


def _check_share(**shares: float) -> None:
    for name, share in shares.items():
        if not 0 <= share < 1:
            raise UserError(f"{name} must be at least 0 and below 1, got {share:g}.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sgd:
    """Stochastic gradient descent: `w -= learning_rate * g`."""

    kind: ClassVar[str] = "sgd"

    learning_rate: float = 0.01

    def __post_init__(self) -> None:
        _check_rate(self.learning_rate)

    def columns(self) -> dict[str, object]:
        """As columns of a table."""
        return _columns(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Momentum:
    """Stochastic gradient descent with momentum: `a = momentum * a + g; w -= learning_rate * a`.

    Attributes:
        nesterov: `w -= learning_rate * (g + momentum * a)` instead.
    """

    kind: ClassVar[str] = "sgd_momentum"

    learning_rate: float = 0.01
    momentum: float = 0.9
    nesterov: bool = False

    def __post_init__(self) -> None:
        _check_rate(self.learning_rate)
        _check_share(momentum=self.momentum)

    def columns(self) -> dict[str, object]:
        """As columns of a table."""
        return _columns(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Adam:
    """Adam (Kingma and Ba, "Adam: A Method for Stochastic Optimization", ICLR 2015)."""

    kind: ClassVar[str] = "adam"

    learning_rate: float = 0.001
    beta_1: float = 0.9
    beta_2: float = 0.999
    epsilon: float = 1e-7

    def __post_init__(self) -> None:
        _check_rate(self.learning_rate)
        _check_share(beta_1=self.beta_1, beta_2=self.beta_2)
        at_least(0, epsilon=self.epsilon)

    def columns(self) -> dict[str, object]:
        """As columns of a table."""
        return _columns(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class AdamW:
    """Adam with decoupled weight decay (Loshchilov and Hutter, ICLR 2019), as Keras writes it.

    `w -= learning_rate * weight_decay * w`, then the step of Adam.
    """

    kind: ClassVar[str] = "adamw"

    learning_rate: float = 0.001
    beta_1: float = 0.9
    beta_2: float = 0.999
    epsilon: float = 1e-7
    weight_decay: float = 0.004

    def __post_init__(self) -> None:
        _check_rate(self.learning_rate)
        _check_share(beta_1=self.beta_1, beta_2=self.beta_2)
        at_least(0, epsilon=self.epsilon, weight_decay=self.weight_decay)

    def columns(self) -> dict[str, object]:
        """As columns of a table."""
        return _columns(self)


Optimizer = Sgd | Momentum | Adam | AdamW


def _columns(rule: Optimizer) -> dict[str, object]:
    """The rule, and its settings under their own names."""
    return {"optimizer": rule.kind, **asdict(rule)}


def optimizer_text(optimizer: Optimizer) -> str:
    """As `adam, learning rate 0.001, beta 1 0.9 ...`."""
    columns = optimizer.columns()
    settings = (name for name in columns if name != "optimizer")
    stated = (f"{name.replace('_', ' ')} {columns[name]:g}" for name in settings)
    return ", ".join([optimizer.kind, *stated])
