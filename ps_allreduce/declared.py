"""How a setting is declared: once, as a field, from which its option and its help follow.

Decides what a field can say of itself.  How that becomes an option is decided in
`launchers.cli.options`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

#: Of a field: what makes it an option.
DECLARED = "declared"


@dataclass(frozen=True, slots=True, kw_only=True)
class Declared:
    """What a setting says of itself.

    Attributes:
        text: for help.
        unit: how a value is written, where its type does not tell.
        usual: help shows it without being asked for all options.
        instead: the default that holds where None stands for it; empty: help does not tell it.
        option: how it is typed, where its name does not tell.
    """

    text: str
    unit: str = ""
    usual: bool = False
    instead: object = None
    option: str = ""


def setting(
    text: str,
    default: object = None,
    *,
    unit: str = "",
    usual: bool = False,
    instead: object = None,
    option: str = "",
    metadata: Mapping[str, object] | None = None,
) -> Any:
    """A field of a dataclass of settings that can be stated on the command line.

    Args:
        metadata: what else is said of the field.
    """
    declared = Declared(text=text, unit=unit, usual=usual, instead=instead, option=option)
    return field(default=default, metadata={**(metadata or {}), DECLARED: declared})
