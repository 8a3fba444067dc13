"""Packages that another package would import for things that tasks never do.

Keras imports scikit-learn for its wrappers and Matplotlib for its galleries wherever they are
installed, which they are for the analysis.  That is a third of the time and of the files of
`import tensorflow`, on every host and in every job step.  It does without where they are missing,
so for its import they are.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

#: Tried by Keras, never used by a task.
UNUSED_BY_TASKS = ("matplotlib", "pandas", "sklearn")


@contextmanager
def left_out(*names: str) -> Iterator[None]:
    """Let imports of these packages fail meanwhile, but for those that are imported already."""
    absent = [name for name in names if name not in sys.modules]
    # What the import system does with None: https://docs.python.org/3/reference/import.html
    sys.modules.update(dict.fromkeys(absent))  # type: ignore[arg-type]
    try:
        yield
    finally:
        for name in absent:
            del sys.modules[name]
