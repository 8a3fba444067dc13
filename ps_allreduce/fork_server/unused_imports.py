"""Packages that Keras would import for things that tasks never do.

Keras imports scikit-learn for its wrappers and Matplotlib for its galleries if they are installed,
and the analysis needs them installed.  That is a third of the time and of the files of `import
tensorflow`, on every host and in every job step.  Keras works without them, so they are hidden from
it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

#: Keras tries to import these; no task uses them.
UNUSED_BY_TASKS = ("matplotlib", "pandas", "sklearn")


@contextmanager
def left_out(*names: str) -> Iterator[None]:
    """Let imports of these packages fail meanwhile, unless they are imported already."""
    # With None as its module, an import fails: https://docs.python.org/3/reference/import.html
    absent: dict[str, Any] = {name: None for name in names if name not in sys.modules}
    sys.modules.update(absent)
    try:
        yield
    finally:
        for name in absent:
            del sys.modules[name]
