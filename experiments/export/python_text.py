"""Values of an experiment as Python text: what a user reads in `train.py`.  Pure."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import asdict

from ps_allreduce.point.optimizers import Optimizer
from ps_allreduce.point.wire import Wire

#: So long may a call be that stands in one line behind a name.
LONGEST_CALL = 80


def call_text(name: str, arguments: Mapping[str, object]) -> str:
    """A call with named arguments."""
    return lines_of_call(name, [f"{key}={quoted(value)}" for key, value in arguments.items()])


def lines_of_call(name: str, arguments: Sequence[str], indent: int = 0) -> str:
    """A call in one line, or with a line for each argument where it is long."""
    short = f"{name}({', '.join(arguments)})"
    if len(short) + indent <= LONGEST_CALL:
        return short
    blanks = " " * indent
    lines = "".join(f"{blanks}    {each},\n" for each in arguments)
    return f"{name}(\n{lines}{blanks})"


def quoted(value: object) -> str:
    """A literal; texts in double quotes, in ASCII."""
    if isinstance(value, str):
        inside = ascii(value)[1:-1].replace("\\'", "'").replace('"', '\\"')
        return f'"{inside}"'
    return repr(value)


def optimizer_text(optimizer: Optimizer) -> str:
    """The rule of an optimizer, as it is made."""
    return call_text(optimizer.applied_by, asdict(optimizer))


def keras_optimizer_text(optimizer: Optimizer) -> str:
    """The same rule as what `keras.optimizers.get` takes."""
    lines = "".join(
        f'        "{key}": {quoted(each)},\n' for key, each in asdict(optimizer).items()
    )
    return f'{{\n    "class_name": "{optimizer.keras_class}",\n    "config": {{\n{lines}    }},\n}}'


def messages_text(wire: Wire) -> str:
    """How gradients are sent, as `exchange.buckets.Messages` is made."""
    return call_text("Messages", asdict(wire.messages))


def arguments_text(words: Sequence[str]) -> str:
    """`name=value` words as arguments of a call: a value is a Python literal if it is one."""
    pairs = [word.partition("=") for word in words]
    return ", ".join(f"{name}={quoted(_literal(text))}" for name, _, text in pairs)


def _literal(text: str) -> object:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text
