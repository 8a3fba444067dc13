"""The models that the suite ships, as text.  Pure."""

from __future__ import annotations

import textwrap

from experiments.models.model_text import EXAMPLES
from ps_allreduce.point.models.recommenders import RECOMMENDERS, WIDTH, Tables
from ps_allreduce.point.models.shapes import KNOWN, PUBLISHED
from ps_allreduce.point.models.trained import ARCHITECTURES, TEXT_MODELS, TextModel
from ps_allreduce.point.models.weights import PublishedModel

_NAMES = ", ".join(KNOWN)


def render_models() -> str:
    """Every name, in groups, with what its examples are."""
    return "\n".join(
        [
            "Images (smallest size and the one designed for, in pixels):",
            *(
                f"  {name:<18} {sizes.minimum_image_size:>3} {sizes.designed_image_size:>4}"
                for name, sizes in ARCHITECTURES.items()
            ),
            "",
            "Text (tokens of a sequence, vocabulary):",
            *(_text_line(TextModel(name=name)) for name in TEXT_MODELS),
            "",
            f"Recommenders (tables, rows of all, each of {WIDTH} numbers):",
            *(_tables_line(name, tables) for name, tables in RECOMMENDERS.items()),
            "",
            "Weights alone, for placement and with --emulate (MB, variables):",
            *(_weights_line(PublishedModel(name=name)) for name in PUBLISHED),
            "  Tensors-N-xMB      N equal tensors of x MB together, also in KB",
            *textwrap.wrap(
                f"  InceptionV3/32     the same, each variable 32 times smaller; of {_NAMES}",
                width=100,
                subsequent_indent=" " * 21,
            ),
            "",
            "Your own (docs/own_model.md):",
            f"  {EXAMPLES}",
        ]
    )


def _text_line(model: TextModel) -> str:
    return f"  {model.name:<18} {model.sequence_length:>3} {model.vocabulary:>4}"


def _tables_line(name: str, tables: Tables) -> str:
    return f"  {name:<18} {len(tables.rows):>3} {sum(tables.rows):>4}"


def _weights_line(model: PublishedModel) -> str:
    variables = model.variables
    megabytes = sum(spec.num_bytes for spec in variables) / 1e6
    return f"  {model.name:<18} {megabytes:>3.0f} {len(variables):>4}"
