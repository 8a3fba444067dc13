"""Types of options, for `click`: text is parsed where it is typed, and help shows the choices.

Decides how enumerations, numbers, sizes, rates, traffic, delays, limits of time, lists of numbers,
names of networks and the words of a command are spelled.  Digits are those of ASCII: Python and
`click` also read other scripts, underscores and blanks.
"""

from __future__ import annotations

import ipaddress
import math
import re
import shlex
from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import click

from ps_allreduce.errors import UserError
from ps_allreduce.point.network import parse_delay, parse_rate, parse_traffic

if TYPE_CHECKING:
    ParamType = click.ParamType[Any]
else:
    ParamType = click.ParamType  # no generic class before click 8.4

T = TypeVar("T")
EnumT = TypeVar("EnumT", bound=StrEnum)

SIZE_UNITS = {"": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9}

#: TensorFlow counts bytes in 64 bits; nothing that is trained comes near.
MOST_BYTES = 10**15

#: More would not fit into 64 bits.
DIGITS = "[0-9]{1,18}"

DECIMAL = r"[0-9]{1,18}(?:\.[0-9]{1,18})?"

#: The kernel's limit for the name of an interface.
INTERFACE_NAME = r"[!-.0-~]{1,15}"


class Parsed(ParamType, Generic[T]):
    """Text that a function reads; its `UserError` becomes the message.

    Args:
        name: how the text is written, units included, for help.
    """

    def __init__(self, name: str, parse: Callable[[str], T]) -> None:
        self.name = name
        self._parse = parse

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:
        """Help shows how the text is written."""
        return f"<{self.name}>"

    def convert(
        self, value: str | T, param: click.Parameter | None, ctx: click.Context | None
    ) -> T:
        """Read the text; a default may be a value already."""
        if not isinstance(value, str):
            return value
        try:
            return self._parse(value)
        except UserError as error:
            self.fail(str(error), param, ctx)


class OneOf(Parsed[T]):
    """One of some names, as the value that it stands for."""

    def __init__(self, choices: Mapping[str, T]) -> None:
        super().__init__("|".join(choices), self._look_up)
        self._choices = choices

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:
        """Help shows the choices."""
        return f"[{self.name}]"

    def _look_up(self, name: str) -> T:
        if name not in self._choices:
            raise UserError(f"{name!r} is not one of {', '.join(self._choices)}.")
        return self._choices[name]


def one_of(enumeration: type[EnumT]) -> OneOf[EnumT]:
    """A member of an enumeration, by its value."""
    return OneOf({member.value: member for member in enumeration})


def named(names: Iterable[str]) -> OneOf[str]:
    """One of some names, as it stands."""
    return OneOf({name: name for name in names})


def parse_whole(text: str) -> int:
    """A whole number.

    Raises:
        UserError: the text is none, or has more than 18 digits.
    """
    if not re.fullmatch(f"-?{DIGITS}", text):
        raise UserError(f"{text!r} is no whole number of up to 18 digits; write for instance 4.")
    return int(text)


def parse_decimal(text: str) -> float:
    """A number such as `3`, `0.02` or `2e-3`.

    Raises:
        UserError: the text is none.
    """
    if not re.fullmatch(f"-?{DECIMAL}(?:[eE]-?[0-9]{{1,2}})?", text):
        raise UserError(f"{text!r} is no number; write for instance 0.02.")
    return float(text)


def parse_size(text: str) -> int:
    """Bytes of `4000000`, `500kB` or `4MB`; prefixes count in thousands.

    Raises:
        UserError: the text is no size, or more than the largest.
    """
    match = re.fullmatch(f"({DECIMAL}) ?([a-zA-Z]*)", text.strip())
    unit = match[2].lower() if match else ""
    size = Decimal(match[1]) * SIZE_UNITS.get(unit, 0) if match else Decimal()
    if match is None or unit not in SIZE_UNITS or size % 1:
        raise UserError(f"{text!r} is no size; write bytes, or for instance 500kB or 4MB.")
    if size > MOST_BYTES:
        raise UserError(f"{text!r} is more than {size_text(MOST_BYTES)}.")
    return int(size)


def size_text(num_bytes: int) -> str:
    """Bytes as `500kB`: in the largest unit of which they are a whole number."""
    for name, factor in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if num_bytes and num_bytes % factor == 0:
            return f"{num_bytes // factor}{name}"
    return str(num_bytes)


def parse_counts(text: str) -> tuple[int, ...]:
    """Ascending whole numbers of `1,2,4`, each once.

    Raises:
        UserError: a part is no whole number from 1 on.
    """
    parts = [part.strip() for part in text.split(",")]
    if not all(re.fullmatch(DIGITS, part) and int(part) for part in parts):
        raise UserError(
            f"{text!r} is no list of whole numbers from 1 on; write for instance 1,2,4."
        )
    return tuple(sorted({int(part) for part in parts}))


def parse_minutes(text: str) -> int:
    """Whole minutes, rounded up, of `90`, `1:30:00` or `1-12:00:00`, as Slurm takes them.

    Raises:
        UserError: the text is no time.
    """
    days, dash, rest = text.rpartition("-")
    parts = rest.split(":")
    wanted = (*parts, days if dash else "0")
    if len(parts) > 3 or not all(re.fullmatch("[0-9]{1,9}", part) for part in wanted):
        raise UserError(
            f"{text!r} is no time; write minutes, hours:minutes:seconds or "
            "days-hours:minutes:seconds."
        )
    numbers = [int(part) for part in parts]
    if not dash and len(numbers) < 3:
        numbers = [0, *numbers]
    hours, minutes, seconds = [*numbers, 0, 0][:3]
    return max(1, (int(days or 0) * 24 + hours) * 60 + minutes + math.ceil(seconds / 60))


def parse_path(text: str) -> Path:
    """A file or a folder.

    Raises:
        UserError: the text is empty, which would be the present folder, or the next option.
    """
    if text.startswith("--"):
        raise UserError(f"{text!r} looks like an option; write ./{text} if it is a path.")
    if not text.strip():
        raise UserError("an empty text names no file or folder.")
    return Path(text)


def parse_interface(text: str) -> str:
    """The name of an interface, an address or a subnet.

    Raises:
        UserError: the text is none of these.
    """
    if re.fullmatch(INTERFACE_NAME, text):
        return text
    try:
        ipaddress.ip_network(text, strict=False)
    except ValueError:
        raise UserError(
            f"{text!r} is neither the name of an interface nor a subnet; write for instance eth0 "
            "or 10.1.0.0/16."
        ) from None
    return text


def parse_words(text: str) -> tuple[str, ...]:
    """The words of a command, as a shell splits them.

    Raises:
        UserError: a quotation mark has no partner.
    """
    try:
        return tuple(shlex.split(text))
    except ValueError as error:
        raise UserError(f"{text!r} cannot be split into words ({error}).") from error


WHOLE = Parsed("n", parse_whole)

NUMBER = Parsed("number", parse_decimal)

#: Bytes.
SIZE = Parsed("bytes, kB, MB or GB", parse_size)

COUNTS = Parsed("n,n,...", parse_counts)

SHARE = Parsed("share", parse_decimal)

#: Bits per second.
RATE = Parsed("gbit, mbit, kbit, bit or unlimited", parse_rate)

TRAFFIC = Parsed("rate or from-to:rate", parse_traffic)

#: Seconds.
DELAY = Parsed("s, ms or us", parse_delay)

#: Minutes.
MINUTES = Parsed("minutes, h:m:s or d-h:m:s", parse_minutes)

#: A file or a folder.
PATH = Parsed("path", parse_path)

INTERFACE = Parsed("name or subnet", parse_interface)

#: A command.
WORDS = Parsed("words", parse_words)
