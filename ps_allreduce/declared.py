"""How a setting is declared: once, as a field, from which option, help and labels follow.

Decides what a field can say of itself, and how its value is called in labels and titles.  How it
becomes an option is decided in `launchers.cli.options`.
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
        said: how a value is called, with `{}` for it; empty: by name and value.
        named: values that are called otherwise; what is called by an empty text goes without
            saying, and so does None.
        exchange: of a strategy, it is about the exchange of gradients: labels say such settings
            last, and only where they are not at their default if several differ.
    """

    text: str = ""
    unit: str = ""
    usual: bool = False
    instead: object = None
    option: str = ""
    said: str = ""
    named: Mapping[object, str] = field(default_factory=dict)
    exchange: bool = True

    def phrase(self, name: str, value: Any) -> str:
        """What a label or a title says of the setting of that name."""
        if value is None or value in self.named:
            return self.named.get(value, "")
        shown = megabytes(value) if self.unit == "size" else value
        return (self.said or f"{name.replace('_', ' ')} {{}}").format(shown)


def typed(name: str) -> str:
    """The option of a setting of that name."""
    return f"--{name.replace('_', '-')}"


def megabytes(size: float) -> str:
    """Bytes as `0.5 MB`."""
    return f"{size / 1e6:g} MB"


def setting(
    text: str,
    default: object = None,
    *,
    metadata: Mapping[str, object] | None = None,
    **own: Any,
) -> Any:
    """A field of a dataclass of settings that can be stated on the command line.

    Args:
        metadata: what else is said of the field.
        own: what it says of itself, as `Declared` is made.
    """
    declared = Declared(text=text, **own)
    return field(default=default, metadata={**(metadata or {}), DECLARED: declared})
