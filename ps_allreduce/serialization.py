"""Frozen dataclasses to JSON values and back, strictly.

Decides that an unknown or missing key, or a value of another type, is an error: a misspelt key in a
results file or a message is never passed over.  It knows nothing of any particular dataclass.
"""

from __future__ import annotations

import types
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from typing import Any, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from ps_allreduce.errors import RecordFormatError

T = TypeVar("T")


def to_json(value: object) -> Any:
    """Dataclasses become mappings, tuples lists, enumerations their values.

    Raises:
        TypeError: the value holds something that has no JSON form.
    """
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: to_json(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Enum):
        return value.value
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Mapping):
        return {str(key): to_json(item) for key, item in value.items()}
    if isinstance(value, Sequence):
        return [to_json(item) for item in value]
    raise TypeError(f"{type(value).__name__} has no JSON form")


def from_json(cls: type[T], value: object, where: str = "") -> T:
    """Build an instance of `cls` from what `to_json` made of one.

    Args:
        cls: a dataclass, or any type that may stand in one of its fields.
        value: parsed JSON.
        where: path of the value in its file, for messages.

    Raises:
        RecordFormatError: a key is unknown or missing, or a value has another type.
    """
    return cast(T, _structure(cls, value, where or "top level"))


def _structure(kind: Any, value: Any, where: str) -> Any:
    origin, arguments = get_origin(kind), get_args(kind)
    if kind is Any or kind is object:
        return value
    if origin in (Union, types.UnionType):
        return _structure_optional(arguments, value, where)
    if origin is tuple:
        _expect(isinstance(value, list), value, "a list", where)
        return tuple(
            _structure(arguments[0], item, f"{where}[{i}]") for i, item in enumerate(value)
        )
    if origin is not None and issubclass(origin, Mapping):
        _expect(isinstance(value, dict), value, "an object", where)
        return {
            key: _structure(arguments[1], item, f"{where}.{key}") for key, item in value.items()
        }
    if is_dataclass(kind):
        return _structure_dataclass(kind, value, where)
    return _structure_scalar(kind, value, where)


def _structure_optional(choices: tuple[Any, ...], value: Any, where: str) -> Any:
    if value is None and type(None) in choices:
        return None
    (kind,) = [choice for choice in choices if choice is not type(None)]
    return _structure(kind, value, where)


def _structure_dataclass(kind: Any, value: Any, where: str) -> Any:
    _expect(isinstance(value, dict), value, "an object", where)
    hints = get_type_hints(kind)
    known = {field.name: field for field in fields(kind)}
    if unknown := set(value) - set(known):
        raise RecordFormatError(f"{where}: unknown key {', '.join(sorted(unknown))}.")
    required = {
        name
        for name, field in known.items()
        if field.default is MISSING and field.default_factory is MISSING
    }
    if missing := required - set(value):
        raise RecordFormatError(f"{where}: missing key {', '.join(sorted(missing))}.")
    return kind(
        **{name: _structure(hints[name], item, f"{where}.{name}") for name, item in value.items()}
    )


def _structure_scalar(kind: Any, value: Any, where: str) -> Any:
    if issubclass(kind, Enum):
        try:
            return kind(value)
        except ValueError as error:
            raise RecordFormatError(f"{where}: {error}.") from error
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    exact = isinstance(value, kind) and (kind is bool or not isinstance(value, bool))
    _expect(exact, value, kind.__name__, where)
    return value


def _expect(holds: bool, value: object, wanted: str, where: str) -> None:
    if not holds:
        raise RecordFormatError(f"{where}: expected {wanted}, found {value!r}.")
