"""From the records of a sweep to figures, tables and sentences; files in, files out.

Needs no TensorFlow and starts no process: it runs wherever the records are.  In a notebook
`analysis.load(folder)` is the table of all attempts, and `analysis.load_steps(run)` the timings of
one of them (`docs/notebook.md`).  Here nothing is imported before it is needed
(`ps_allreduce.process`).
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from analysis.data.load import load, load_steps

__all__ = ["load", "load_steps"]


def __getattr__(name: str) -> object:
    if name in __all__:
        return getattr(import_module("analysis.data.load"), name)
    raise AttributeError(f"module {__name__} has no attribute {name}")
