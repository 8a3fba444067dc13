"""Files that hold a JSON value of one kind on every line; they are written as a whole."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import TypeVar

from ps_allreduce.errors import UserError
from ps_allreduce.record.files import write_atomically
from ps_allreduce.serialization import from_json, parse_json, to_json

ValueT = TypeVar("ValueT")


def read_lines(path: Path, kind: type[ValueT]) -> list[ValueT]:
    """All values in a file; none where there is no file.

    Raises:
        UserError: a line is no JSON, or no value of that kind.
    """
    if not path.exists():
        return []
    try:
        lines = [parse_json(line) for line in path.read_bytes().splitlines()]
    except ValueError as error:
        raise UserError(f"{path} holds a line that is no JSON ({error}).") from error
    return [from_json(kind, line, str(path)) for line in lines]


def write_lines(path: Path, values: Iterable[object]) -> None:
    """Write a line for each value.

    Raises:
        UserError: no permission, or no space left.
    """
    lines = [json.dumps(to_json(each)) + "\n" for each in values]
    write_atomically(path, "".join(lines).encode())
