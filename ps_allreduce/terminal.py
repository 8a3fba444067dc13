"""The only way in which text gets to a terminal: what could steer it is written out.

Names of files, hosts and models come from elsewhere, and records as well: an escape in them could
hide a line or colour it, and a mark of direction turn it round.  Decides what is shown of such a
character.  Colours and bars of our own are no text and stay.  For whoever talks to people; the
measured program imports nothing of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text


def harmless(text: str) -> str:
    """The text with control characters, marks of direction and broken bytes written out."""
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() or each == "\n" else repr(each)[1:-1] for each in text
    )


def echo(text: object, *, err: bool = False) -> None:
    """A line on standard output, or standard error, at once.

    Raises:
        OSError: nobody reads it, or the disk is full.
    """
    click.echo(harmless(str(text)), err=err)


class Terminal(Console):
    """Rich's console, which writes out what is in texts and cells as `harmless` does."""

    def render_str(self, text: str, **settings: Any) -> Text:
        """A text before anybody asks how wide it is."""
        return super().render_str(harmless(text), **settings)

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterator[Segment]:
        """What is shown of something, piece by piece."""
        for piece in super().render(renderable, options):
            yield piece if piece.control else Segment(harmless(piece.text), piece.style)
