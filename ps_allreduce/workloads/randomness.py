"""Layers that draw random numbers, and how they are kept from it.

Workers draw independently, so weights of different strategies could not be compared.  Decides which
layers draw: those that own a generator of seeds, such as dropout, augmentation, and cells of
recurrent layers.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import keras

from ps_allreduce.errors import UserError
from ps_allreduce.exchange.private_api import all_layers


def switch_off_randomness(model: keras.Model) -> None:
    """Let layers that draw random numbers compute as in inference, and no others.

    Batch norm goes on to normalise every batch by its own mean and variance.

    Raises:
        UserError: a layer does not let itself be told, or batch norm is inside of it.
    """
    drawing = [layer for layer in all_layers(model) if _generators(layer)]
    stubborn = [layer.name for layer in drawing if not _can_be_told(layer)]
    if stubborn:
        raise UserError(
            f"layer {', '.join(stubborn)} draws random numbers, and its weights cannot be compared "
            "while it does: give its method call an argument `training`, draw only if that is "
            "true, and keep batch norm out of the layer."
        )
    for layer in drawing:
        if hasattr(layer, "recurrent_dropout"):  # of a cell, for which the layer around it draws
            layer.dropout = layer.recurrent_dropout = 0.0
        layer.call = _as_in_inference(layer.call)


def name_seeds(model: keras.Model) -> dict[int, str]:
    """Names of the generators' states, by the identity of the variable, after the layer of each.

    Keras numbers generators, and does not say whose they are.
    """
    return {
        id(generator.state.value): f"{layer.name}/{generator.state.name}"
        for layer in all_layers(model)
        for generator in _generators(layer)
    }


def _generators(layer: keras.Layer) -> list[keras.random.SeedGenerator]:
    held = vars(layer).values()
    return [each for each in held if isinstance(each, keras.random.SeedGenerator)]


def _can_be_told(layer: keras.Layer) -> bool:
    inside = all_layers(layer)
    has_batch_norm = any(isinstance(each, keras.layers.BatchNormalization) for each in inside)
    return "training" in inspect.signature(layer.call).parameters and not has_batch_norm


def _as_in_inference(call: Callable[..., Any]) -> Callable[..., Any]:
    """A layer's method, to which `training` is false."""
    signature = inspect.signature(call)

    @functools.wraps(call)
    def calm(*arguments: Any, **named: Any) -> Any:
        bound = signature.bind(*arguments, **named)
        bound.arguments["training"] = False
        return call(*bound.args, **bound.kwargs)

    return calm
