"""Gradients that tell of some rows only, in a sentence of the headline.

Decides what is said of them: that the suite makes them dense, and what that costs in bytes.  Which
gradients are sparse is found out by the workers (`record.variables`).
"""

from __future__ import annotations

from analysis.data.cases import Case
from analysis.wording import bytes_text, count_text
from ps_allreduce.record.variables import SparseGradient


def sparse_line(case: Case) -> str:
    """What making sparse gradients dense costs; empty where none is known to be sparse."""
    records = [record for point in case.points for record in point.counting]
    if not any(record.is_sparse for record in records):
        return ""
    told = [record.sparse for record in records if record.sparse]
    # ParameterServerStrategy's input does not tell the size of a batch; others' does.
    found = min(told, key=lambda each: sum(one.looked_up is None for one in each), default=())
    if not found:
        return "Some gradients are sparse, and the suite makes them dense: it exchanges all rows."
    dense = bytes_text(sum(each.dense_bytes for each in found))
    return (
        f"Gradients of {count_text(len(found), 'variable')} are sparse, and the suite makes them "
        f"dense: each worker exchanges {dense} of float32 for them in a step"
        f"{_touched_text(found)}."
    )


def _touched_text(found: tuple[SparseGradient, ...]) -> str:
    """How much of it a step can change; empty where the graph of the step does not tell."""
    rows = [each.most_touched_rows for each in found]
    known = [each for each in rows if each is not None]
    if len(known) < len(found):
        return ""
    touched = sum(n * each.row_bytes for n, each in zip(known, found, strict=True))
    whole = sum(each.num_rows for each in found)
    return (
        f", against {bytes_text(touched)} at most for the rows that it looks up ({sum(known)} of "
        f"{whole})"
    )
