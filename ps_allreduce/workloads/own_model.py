"""From a user's file to a compiled Keras model, and its optimizer as one of the suite's.

Decides which models the suite can train, as far as it takes no trace to see, and says in a sentence
which it cannot.  What a trace shows, `keras_program` refuses.  Which settings of the optimizer are
not followed is said in a note each.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import keras
import numpy as np

from ps_allreduce.errors import UserError
from ps_allreduce.exchange.private_api import excludes_from_decay
from ps_allreduce.point.measurement import Learning
from ps_allreduce.point.models.trained import Unit
from ps_allreduce.point.optimizers import Adagrad, Adam, AdamW, Momentum, Optimizer, Sgd
from ps_allreduce.workloads.user_code import blaming, call_with_words, import_module, own_files


@dataclass(frozen=True, slots=True)
class UserModel:
    """What a user's file gave.

    Attributes:
        keras_model: compiled.
        files: that were imported, relative to their folder.
        dataset, validation: the module's functions of shard and number of shards, and perhaps of a
            seed, if it has them.
        unit: what the module states about its examples, if it does.
        learning: when it has learned enough, if the module states that.
    """

    keras_model: keras.Model
    files: tuple[str, ...]
    dataset: Callable[..., Any] | None = None
    validation: Callable[..., Any] | None = None
    unit: Unit | None = None
    learning: Learning | None = None


def load_user_model(
    folder: Path, module: str, function: str, arguments: tuple[str, ...]
) -> UserModel:
    """Import a module from a folder and call its function; without one, load a saved model.

    Raises:
        UserError: it cannot be done, or the suite cannot train the model.
    """
    if not function:
        with blaming(f"loading {module}", folder):
            saved = keras.saving.load_model(folder / module, safe_mode=True)
        _check_model(saved, module)
        return UserModel(saved, (module,))
    before = frozenset(sys.modules)
    imported = import_module(folder, module)
    model = call_with_words(_function_of(imported, function), arguments, folder)
    _check_model(model, f"{function}()")
    return UserModel(
        model,
        own_files(folder, before),
        _callable_or_none(getattr(imported, "dataset", None)),
        _callable_or_none(getattr(imported, "validation_dataset", None)),
        _unit_of(imported),
        _learning_of(imported),
    )


def _function_of(module: ModuleType, name: str) -> Callable[..., Any]:
    function = getattr(module, name, None)
    if callable(function):
        return function  # type: ignore[no-any-return]
    there = [key for key, value in vars(module).items() if _is_public_function(module, key, value)]
    module_name, functions = module.__name__, ", ".join(there) or "none at all"
    if hasattr(module, name):
        raise UserError(f"{name} of {module_name} is no function; it has {functions}.")
    raise UserError(f"{module_name} has no function {name}; it has {functions}.")


def _is_public_function(module: ModuleType, name: str, value: object) -> bool:
    made_here = getattr(value, "__module__", None) == module.__name__
    return callable(value) and made_here and not name.startswith("_")


def _callable_or_none(value: Any) -> Callable[..., Any] | None:
    return value if callable(value) else None


def _unit_of(module: ModuleType) -> Unit | None:
    stated = getattr(module, "UNIT", None)
    if stated is None or stated in list(Unit):
        return None if stated is None else Unit(stated)
    raise UserError(f"UNIT of {module.__name__} is {stated!r}: choose one of {', '.join(Unit)}.")


def _learning_of(module: ModuleType) -> Learning | None:
    stated = getattr(module, "LEARNED", None)
    if stated is None:
        return None
    for name in ("dataset", "validation_dataset"):
        if not callable(getattr(module, name, None)):
            raise UserError(f"{module.__name__} states LEARNED and has no function {name}.")
    try:
        return Learning.of_keys(stated)
    except UserError as error:
        raise UserError(f"LEARNED of {module.__name__}: {error}") from error


def _check_model(model: object, source: str) -> None:
    """Refuse what the suite cannot train, as far as this can be seen without a trace."""
    if not isinstance(model, keras.Model):
        raise UserError(
            f"{source} returned {_kind_of(model)} and no keras.Model: return a compiled model of "
            "Keras 3 (import keras)."
        )
    if not model.compiled or model.optimizer is None:
        raise UserError(
            f"the model of {source} is not compiled: call "
            "model.compile(optimizer=..., loss=...) before you return it."
        )
    if type(model).train_step is not keras.Model.train_step:
        raise UserError(
            f"{type(model).__name__} has a train_step of its own, which the suite cannot split "
            "into computing and communicating: put the loss into compute_loss, and leave "
            "train_step out."
        )


def _kind_of(value: object) -> str:
    if value is None:
        return "nothing"
    package = type(value).__module__.partition(".")[0]
    return f"a {type(value).__name__}" + ("" if package == "builtins" else f" of {package}")


def check_weights(model: keras.Model) -> None:
    """Refuse trainable weights that are not float32.

    Raises:
        UserError: there is one, or no weight at all.
    """
    if not model.trainable_variables:
        raise UserError("the model has no trainable weights.")
    for variable in model.trainable_variables:
        if variable.dtype != "float32":
            raise UserError(
                f"the weight {variable.path} is {variable.dtype}: the suite trains float32 weights "
                "only. A policy such as mixed_bfloat16 keeps them float32 and computes in 16 bits."
            )


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


def _adagrad(compiled: keras.optimizers.Adagrad, rate: float) -> Optimizer:
    return Adagrad(
        learning_rate=rate,
        initial_accumulator_value=float(compiled.initial_accumulator_value),
        epsilon=float(compiled.epsilon),
    )


#: By the very class: a subclass may compute something else.
_RULES: Mapping[type[Any], Callable[[Any, float], Optimizer]] = {
    keras.optimizers.SGD: _sgd,
    keras.optimizers.Adagrad: _adagrad,
    keras.optimizers.Adam: _adam,
    keras.optimizers.AdamW: _adam,
}
