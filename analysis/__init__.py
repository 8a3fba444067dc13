"""From the records of a sweep to figures, tables and sentences; files in, files out.

Needs no TensorFlow and starts no process: it runs wherever the records are.  In a notebook
`analysis.load(folder)` is the table of all attempts, and `analysis.load_steps(run)` the timings of
one of them (`docs/notebook.md`).
"""

from analysis.data.load import load, load_steps

__all__ = ["load", "load_steps"]
