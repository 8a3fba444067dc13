"""From a user's file to a compiled Keras model.

Decides which models the suite can train, as far as it takes no trace to see, and says in a sentence
which it cannot.  What a trace shows, `rehearsal` refuses.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import keras

from ps_allreduce.errors import UserError
from ps_allreduce.point.models.names import Unit
from ps_allreduce.workloads.user_code import blaming, call_with_words, import_module, own_files


@dataclass(frozen=True, slots=True)
class UserModel:
    """What a user's file gave.

    Attributes:
        keras_model: compiled.
        files: that were imported, relative to their folder.
        dataset, validation: the module's functions of shard and number of shards, if it has them.
        unit: what the module states about its examples, if it does.
    """

    keras_model: keras.Model
    files: tuple[str, ...]
    dataset: Callable[[int, int], Any] | None = None
    validation: Callable[[int, int], Any] | None = None
    unit: Unit | None = None


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


def _callable_or_none(value: Any) -> Callable[[int, int], Any] | None:
    return value if callable(value) else None


def _unit_of(module: ModuleType) -> Unit | None:
    stated = getattr(module, "UNIT", None)
    if stated is None or stated in list(Unit):
        return None if stated is None else Unit(stated)
    raise UserError(f"UNIT of {module.__name__} is {stated!r}: choose one of {', '.join(Unit)}.")


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
