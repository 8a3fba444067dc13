"""Names of models, and what the examples of a model are called."""

from __future__ import annotations

from enum import StrEnum

from ps_allreduce.errors import UserError

SMALL_CNN, SMALL_VIT = "SmallCNN", "SmallViT"
SMALL_GPT, SMALL_GPT_UNTIED = "SmallGPT", "SmallGPT-untied"


class Unit(StrEnum):
    """What the examples of a model are; those of text are sequences of tokens."""

    IMAGES = "images"
    TOKENS = "tokens"
    ROWS = "rows"

    @property
    def counted(self) -> str:
        """What throughput counts: whole examples, also of text."""
        return "examples" if self is Unit.TOKENS else self.value


def unknown_model(name: str) -> UserError:
    """What is said of a name that no model has."""
    return UserError(
        f"unknown model {name!r}: choose for instance {SMALL_CNN}, {SMALL_GPT}, ResNet50, "
        "Tensors-16-25MB or your own mine.py:build; python -m experiments models lists all."
    )
