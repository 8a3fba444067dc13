"""Code that the user wrote: how it is imported, called, and blamed.

Decides what counts as the user's: modules that are neither of the standard library, nor of an
installed package, nor of this suite.  All of them must lie in one folder.  What the code means is
decided elsewhere.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import os
import site
import sys
import sysconfig
import traceback
from collections.abc import Callable, Iterator, Sequence, Set
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import ps_allreduce
from ps_allreduce.errors import UserError
from ps_allreduce.process import SUITE_PACKAGES, fill_standard_descriptors

_SUITE = Path(ps_allreduce.__file__).resolve().parents[1]

#: Folders whose modules are nobody's own.
_NOT_OWN = tuple(
    Path(str(folder)).resolve()
    for folder in (
        *sysconfig.get_paths().values(),
        *site.getsitepackages(),
        site.getusersitepackages(),
        *(_SUITE / package for package in SUITE_PACKAGES),
    )
    if folder != sysconfig.get_path("data") and folder != sysconfig.get_path("scripts")
)


def import_module(folder: Path, name: str) -> ModuleType:
    """Import a module of the user's, and look for others in its folder first.

    Raises:
        UserError: it is not there, fails, or something else has its name.
    """
    sys.dont_write_bytecode = True  # the folder is the user's
    sys.path.insert(0, str(folder))
    importlib.invalidate_caches()
    with blaming(f"importing {name}", folder):
        module = importlib.import_module(name)
    if _file_of(module) is None or not _is_below(_file_of(module), folder):
        raise UserError(
            f"{name} is also the name of something that Python has loaded already "
            f"({_file_of(module) or 'built in'}): give your file another name."
        )
    return module


def own_files(folder: Path, before: Set[str]) -> tuple[str, ...]:
    """The files below a folder that were imported and are the user's, relative to it.

    Args:
        before: modules that were loaded before anything of the user's.

    Raises:
        UserError: a module of the user's was loaded from elsewhere.
    """
    inside = set()
    for name, module in sorted(sys.modules.items()):
        path = _file_of(module)
        if path is None or any(_is_below(path, other) for other in _NOT_OWN):
            continue
        if _is_below(path, folder):
            inside.add(path.relative_to(folder.resolve()).as_posix())
        elif name not in before:
            raise UserError(
                f"module {name} was imported from {path}, outside of {folder}: hosts get the files "
                "of that folder only. Move it there, or install it as a package on every host."
            )
    return tuple(sorted(inside))


def _file_of(module: Any) -> Path | None:
    file = getattr(module, "__file__", None)
    return Path(file).resolve() if isinstance(file, str) else None


def _is_below(path: Path | None, folder: Path) -> bool:
    return path is not None and path.is_relative_to(folder.resolve())


def call_with_words(function: Callable[..., Any], words: Sequence[str], folder: Path) -> Any:
    """Call a function of the user's with `name=value` words.

    Raises:
        UserError: it has no such parameters, or it raises something.
    """
    name = getattr(function, "__name__", "the function")
    arguments = {key: _value(text) for key, _, text in (word.partition("=") for word in words)}
    signature = inspect.signature(function)
    try:
        signature.bind(**arguments)
    except TypeError as error:
        raise UserError(f"{name}{signature} cannot be called so: {error}.") from None
    with blaming(f"{name}()", folder):
        return function(**arguments)


def _value(text: str) -> object:
    """A Python literal if it is one, else the text itself."""
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


@contextmanager
def blaming(doing: str, folder: Path) -> Iterator[None]:
    """Say in a sentence what the user's code raised, and where; the log gets the traceback.

    What it took away and others need is put back: variables of the environment, and descriptors.

    Raises:
        UserError: instead of every other exception.
    """
    before = dict(os.environ)
    try:
        yield
    except UserError:
        raise
    except (Exception, SystemExit) as error:
        traceback.print_exc()
        text = " ".join(str(error).split()) or "no text"
        short = text if len(text) <= 300 else f"{text[:300]} ..."
        raise UserError(
            f"{doing} failed{_place(error, folder)}: {type(error).__name__}: {short}"
        ) from error
    finally:
        os.environ |= {name: before[name] for name in before.keys() - os.environ.keys()}
        fill_standard_descriptors()


def _place(error: BaseException, folder: Path) -> str:
    """The innermost line of the user's that was executed; empty if there is none."""
    if isinstance(error, SyntaxError) and error.filename:
        return f" at {Path(error.filename).name} line {error.lineno}"
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        path = Path(frame.filename).resolve()
        if _is_below(path, folder):
            return f" at {path.relative_to(folder.resolve())} line {frame.lineno}"
    return ""
