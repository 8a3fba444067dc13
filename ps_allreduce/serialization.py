"""Frozen dataclasses to JSON values and back, strictly, and as columns of a table.

Decides that an unknown, missing or repeated key, a value of another type, or a number that 64 bits
do not hold is an error: a misspelt key in a results file or a message is never passed over.  One of
several dataclasses in a union is told by its class variable `kind`, which is written beside its
fields.  It knows nothing of any particular dataclass.
"""

from __future__ import annotations

import json
import types
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import MISSING, Field, fields, is_dataclass
from enum import Enum
from functools import cache
from reprlib import repr as short
from typing import Any, ClassVar, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from ps_allreduce.errors import RecordFormatError

T = TypeVar("T")

#: The class variable, and the key in JSON, that tells one class of a union from the others.
KIND = "kind"

#: Metadata of a field that came when its dataclass had identities already.  At its default such a
#: field is no part of the identity, which stays what it was.
LATER: Mapping[str, bool] = {"later": True}

#: Metadata of a field whose column has another name; None for no column.
_COLUMN = "column"

#: Types whose values JSON holds as they are.
_SCALARS = (bool, int, float, str)
_NUMBERS = (int, float)

#: Numbers are smaller, whatever they count: no figure of a run comes near, and NaN and infinity are
#: none.
NUMBERS_END = 2**63
_NUMBERS_BEGIN = -NUMBERS_END

#: Makes a value of one type from parsed JSON.
Reader = Callable[[Any], Any]


class _Mismatch(Exception):
    """A value is not of the type wanted; `path` grows from its place to the top level."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.path: list[str] = []


def to_json(value: object) -> Any:
    """Dataclasses become mappings, tuples lists, enumerations their values.

    Raises:
        TypeError: the value holds something that has no JSON form.
    """
    return _plain(value, lambda *_: True)


def identity_of(value: object) -> Any:
    """The JSON form of what tells two equal values from others.

    Fields that a dataclass leaves out of its comparison are left out, and those that came later and
    are at their default.

    Raises:
        TypeError: the value holds something that has no JSON form.
    """
    return _plain(value, _identifies)


def _identifies(field: Field[Any], value: object) -> bool:
    return field.compare and not (
        LATER.items() <= field.metadata.items() and value == field.default
    )


def _plain(value: object, wanted: Callable[[Field[Any], object], bool]) -> Any:
    if isinstance(value, Enum):
        return value.value
    if value is None or isinstance(value, _SCALARS):
        return value
    if is_dataclass(value) and not isinstance(value, type):
        tag = {KIND: getattr(value, KIND)} if hasattr(value, KIND) else {}
        named = {f.name: getattr(value, f.name) for f in fields(value)}
        kept = [f.name for f in fields(value) if wanted(f, named[f.name])]
        return tag | {name: _plain(named[name], wanted) for name in kept}
    if isinstance(value, Mapping):
        return {str(key): _plain(item, wanted) for key, item in value.items()}
    if isinstance(value, Sequence):
        return [_plain(item, wanted) for item in value]
    raise TypeError(f"{type(value).__name__} has no JSON form")


def column(name: str | None) -> dict[str, str | None]:
    """Metadata of a field that is told under another name, or that is none."""
    return {_COLUMN: name}


class Columns:
    """A dataclass whose fields are columns of a table, those of values inside of it among them.

    Attributes:
        kind_column: the column of its `kind`; None for none.
    """

    __slots__ = ()

    kind_column: ClassVar[str | None] = None

    def columns(self) -> dict[str, object]:
        """As columns of a table; enumerations are their values."""
        told = {} if self.kind_column is None else {self.kind_column: getattr(self, KIND)}
        for each in fields(cast(Any, self)):
            value, name = getattr(self, each.name), each.metadata.get(_COLUMN, each.name)
            if isinstance(value, Columns):
                told |= value.columns()
            elif name is not None:
                told[name] = value.value if isinstance(value, Enum) else value
        return told


def changed_parts(value: object) -> list[str]:
    """As `prefetch 0`: the fields that are not at their default; a true one by its name alone."""
    named = [(f.name, getattr(value, f.name), f.default) for f in fields(cast(Any, value))]
    changed = [(name, now) for name, now, usual in named if usual not in (MISSING, now)]
    return [name if now is True else f"{name} {now}" for name, now in changed]


def parse_json(text: str | bytes) -> Any:
    """JSON values; an object may not have a key twice.

    Raises:
        ValueError: the text is no JSON, a key is repeated, or values are nested too deeply.
    """
    content = text.decode() if isinstance(text, bytes) else text
    try:
        return json.loads(content, object_pairs_hook=_refuse_repeats)
    except RecursionError as error:
        raise ValueError("its values are nested too deeply") from error


def _refuse_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f"key {next(key for key in keys if keys.count(key) > 1)!r} is repeated")
    return made


def from_json(cls: type[T], value: object, where: str = "") -> T:
    """Build an instance of `cls` from what `to_json` made of one.

    Args:
        cls: a dataclass, or any type that may stand in one of its fields.
        value: parsed JSON.
        where: path of the value in its file, for messages.

    Raises:
        RecordFormatError: a key is unknown or missing, or a value has another type.
    """
    try:
        return cast(T, _reader(cast(Any, cls))(value))
    except _Mismatch as mismatch:
        place = (where or "top level") + "".join(reversed(mismatch.path))
        raise RecordFormatError(f"{place}: {mismatch}.") from mismatch


@cache
def _reader(kind: Any) -> Reader:
    """Types are looked at once: reading a record makes thousands of values of a few types."""
    origin, arguments = get_origin(kind), get_args(kind)
    if kind is Any or kind is object:
        return lambda value: value
    if origin in (Union, types.UnionType):
        return _union_reader(arguments)
    if origin is tuple:
        return _tuple_reader(_reader(arguments[0]))
    if origin is not None and issubclass(origin, Mapping):
        return _mapping_reader(arguments[1])
    if is_dataclass(kind):
        return _dataclass_reader(kind)
    if issubclass(kind, Enum):
        return _enum_reader(kind)
    return _number_reader(kind) if kind in _NUMBERS else _text_reader(kind)


def _union_reader(choices: tuple[Any, ...]) -> Reader:
    """Of None and one type, or of None and dataclasses that have a `kind`."""
    classes = [choice for choice in choices if choice is not type(None)]
    read = _reader(classes[0]) if len(classes) == 1 else _tagged_reader(classes)
    if len(classes) == len(choices):
        return read
    return lambda value: None if value is None else read(value)


def _tagged_reader(classes: Sequence[Any]) -> Reader:
    readers = {getattr(cls, KIND): _reader(cls) for cls in classes}

    def read(value: Any) -> Any:
        _expect(isinstance(value, dict) and KIND in value, value, f"an object with a {KIND}")
        if not isinstance(value[KIND], str) or value[KIND] not in readers:
            choices = ", ".join(readers)
            raise _Mismatch(f"unknown {KIND} {short(value[KIND])}; choose one of {choices}")
        return readers[value[KIND]](value)

    return read


def _tuple_reader(read: Reader) -> Reader:
    def read_all(value: Any) -> Any:
        _expect(isinstance(value, list), value, "a list")
        made: list[Any] = []
        try:
            for item in value:
                made.append(read(item))
        except _Mismatch as mismatch:
            mismatch.path.append(f"[{len(made)}]")
            raise
        return tuple(made)

    return read_all


def _mapping_reader(kind: Any) -> Reader:
    read = _reader(kind)

    def read_all(value: Any) -> Any:
        _expect(isinstance(value, dict), value, "an object")
        return _read_named(value, dict.fromkeys(value, read))

    def read_numbers(value: Any) -> Any:
        _expect(isinstance(value, dict), value, "an object")
        for item in value.values():
            if type(item) is not kind or not _NUMBERS_BEGIN < item < NUMBERS_END:
                return read_all(value)
        return value  # samples hold hundreds of such mappings

    return read_numbers if kind in _NUMBERS else read_all


def _dataclass_reader(cls: Any) -> Reader:
    hints = get_type_hints(cls)
    required = {f.name for f in fields(cls) if f.default is f.default_factory is MISSING}
    readers = {field.name: _reader(hints[field.name]) for field in fields(cls)}
    is_tagged = hasattr(cls, KIND)

    def read(value: Any) -> Any:
        _expect(isinstance(value, dict), value, "an object")
        named = {name: value[name] for name in value if name != KIND} if is_tagged else value
        if named.keys() != readers.keys():
            _check_keys(named.keys(), readers.keys(), required)
        return cls(**_read_named(named, readers))

    return read


def _check_keys(named: Set[str], known: Set[str], required: Set[str]) -> None:
    if unknown := named - known:
        raise _Mismatch(f"unknown key {', '.join(sorted(unknown))}")
    if missing := required - named:
        raise _Mismatch(f"missing key {', '.join(sorted(missing))}")


def _read_named(value: Mapping[str, Any], readers: Mapping[str, Reader]) -> dict[str, Any]:
    made = {}
    try:
        for name, item in value.items():
            made[name] = readers[name](item)
    except _Mismatch as mismatch:
        mismatch.path.append(f".{name}")
        raise
    return made


def _enum_reader(kind: Any) -> Reader:
    def read(value: Any) -> Any:
        try:
            return kind(value)
        except ValueError as error:
            raise _Mismatch(f"{short(value)} is not a valid {kind.__name__}") from error

    return read


def _text_reader(kind: Any) -> Reader:
    """Also of truth values: nothing but the very type."""

    def read(value: Any) -> Any:
        if type(value) is not kind:
            raise _Mismatch(f"expected {kind.__name__}, found {short(value)}")
        return value

    return read


def _number_reader(kind: Any) -> Reader:
    kinds = (float, int) if kind is float else (int,)

    def read(value: Any) -> Any:
        if type(value) not in kinds:
            raise _Mismatch(f"expected {kind.__name__}, found {short(value)}")
        if not _NUMBERS_BEGIN < value < NUMBERS_END:
            raise _Mismatch(f"expected a number of 64 bits, found {short(value)}")
        return kind(value)

    return read


def _expect(holds: bool, value: object, wanted: str) -> None:
    if not holds:
        raise _Mismatch(f"expected {wanted}, found {short(value)}")
