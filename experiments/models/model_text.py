"""What is typed as `--model` and `--model-arg` where the user's own model is meant.  Pure.

Decides what names an own model, what its function and its module are called, and which folder is
searched for the module; and how the models that the suite ships are listed.  Whether the file is
there is looked at in `settle_model`.
"""

from __future__ import annotations

import keyword
import sys
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ps_allreduce.errors import UserError
from ps_allreduce.point.models.recommenders import RECOMMENDERS, WIDTH
from ps_allreduce.point.models.shapes import KNOWN, PUBLISHED
from ps_allreduce.point.models.trained import ARCHITECTURES, TEXT_MODELS, TextModel
from ps_allreduce.point.models.weights import PublishedModel
from ps_allreduce.process import SUITE_PACKAGES

#: The ending of a model that Keras has saved.
SAVED = ".keras"

SOURCE = ".py"

#: Modules that a process has imported before it looks for the user's: it would get these.
TAKEN = frozenset({*sys.stdlib_module_names, *SUITE_PACKAGES, "keras", "numpy", "tensorflow"})

EXAMPLES = "mine.py:build, package.module:build or saved.keras"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCode:
    """Where the user's own code is, or the file of a saved model.

    Attributes:
        name: as it was typed.
        root: folder that is searched first for modules; of a saved model, the file's.
        module: its name below `root`; of a saved model, the file's.
        function: that returns the compiled model; empty for a saved model.
        files: one of them, the module's, has to be there.
    """

    name: str
    root: Path
    module: str
    function: str
    files: tuple[Path, ...]

    @property
    def maker(self) -> str:
        """What builds the model, in a sentence: `build() of mine.py`."""
        if not self.function:
            return f"loading {self.name}"
        return f"{self.function}() of {self.name.rpartition(':')[0]}"


def is_own(text: str) -> bool:
    """A text does not name a model of the suite, but code or a file of the user's."""
    return ":" in text or text.endswith((SAVED, SOURCE))


def model_code(text: str, folder: Path) -> ModelCode:
    """What a text names that names an own model.

    Args:
        folder: that paths and modules are searched from, absolute.

    Raises:
        UserError: it names no function, or something that cannot be imported.
    """
    if not text.isprintable():
        raise UserError(f"--model {text!r}: its characters cannot all be shown; rename the file.")
    place, colon, function = text.rpartition(":")
    if text.endswith(SAVED):
        path = folder / text
        return ModelCode(name=text, root=path.parent, module=path.name, function="", files=(path,))
    if place.endswith(SAVED):
        raise UserError(f"--model {text}: a saved model has no function; write {place}.")
    if not colon or not function or not place:
        raise UserError(
            f"--model {text} names no function: write for instance {place or 'mine.py'}:build, "
            f"where build() returns the compiled model. An own model is written as {EXAMPLES}."
        )
    if not _is_name(function):
        raise UserError(f"--model {text}: {function!r} is no name of a Python function.")
    if "/" in place or place.endswith(SOURCE):
        return _of_file(text, folder / place, function)
    return _of_module(text, folder, place, function)


def _of_file(text: str, path: Path, function: str) -> ModelCode:
    if path.suffix != SOURCE:
        raise UserError(f"--model {text}: {path.name} is no Python file, whose name ends in .py.")
    if not _is_name(path.stem):
        raise UserError(
            f"--model {text}: {path.stem!r} is no name of a Python module, so {path.name} cannot "
            "be imported; give the file a name of letters, digits and underscores."
        )
    _refuse_taken(text, path.stem)
    return ModelCode(
        name=text, root=path.parent, module=path.stem, function=function, files=(path,)
    )


def _of_module(text: str, folder: Path, module: str, function: str) -> ModelCode:
    parts = module.split(".")
    if not all(map(_is_name, parts)):
        raise UserError(
            f"--model {text}: {module!r} is neither a Python file nor the name of a module; write "
            f"{EXAMPLES}."
        )
    _refuse_taken(text, parts[0])
    inside = folder.joinpath(*parts)
    files = (inside.with_suffix(SOURCE), inside / "__init__.py")
    return ModelCode(name=text, root=folder, module=module, function=function, files=files)


def _is_name(text: str) -> bool:
    return text.isidentifier() and not keyword.iskeyword(text)


def _refuse_taken(text: str, module: str) -> None:
    if module in TAKEN:
        raise UserError(
            f"--model {text}: another module is called {module}, of Python, TensorFlow or this "
            "suite, and would be imported instead; give yours another name."
        )


def parse_argument(text: str) -> str:
    """An argument of the function as `name=value`; its value is any text.

    Raises:
        UserError: it is none, or the name is none that Python takes.
    """
    name, equals, _ = text.partition("=")
    if not equals or not _is_name(name):
        raise UserError(f"{text!r} is no argument; write name=value, for instance width=64.")
    return text


def in_order(arguments: Sequence[str]) -> tuple[str, ...]:
    """Arguments in the order of their names.

    Raises:
        UserError: a name is there twice.
    """
    names = [argument.partition("=")[0] for argument in arguments]
    for name in names:
        if names.count(name) > 1:
            raise UserError(f"--model-arg names {name} twice: state one value.")
    return tuple(sorted(arguments, key=lambda argument: argument.partition("=")[0]))


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
            *(
                f"  {each.name:<18} {each.sequence_length:>3} {each.vocabulary:>4}"
                for each in (TextModel(name=name) for name in TEXT_MODELS)
            ),
            "",
            f"Recommenders (tables, rows of all, each of {WIDTH} numbers):",
            *(
                f"  {name:<18} {len(tables.rows):>3} {sum(tables.rows):>4}"
                for name, tables in RECOMMENDERS.items()
            ),
            "  TwoTower-RxW         2 tables of R rows of W numbers",
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


def _weights_line(model: PublishedModel) -> str:
    variables = model.variables
    megabytes = sum(spec.num_bytes for spec in variables) / 1e6
    return f"  {model.name:<18} {megabytes:>3.0f} {len(variables):>4}"
