"""Gradients that tell of some rows of a variable only, as those of embeddings do.

Decides what a record holds of them.  How the suite exchanges them is decided in `exchange`: it
makes them dense, so that a step sends all rows.
"""

from __future__ import annotations

from dataclasses import dataclass

#: Ends a note about such a gradient.
MADE_DENSE = "is sparse and was made dense"


@dataclass(frozen=True, slots=True, kw_only=True)
class SparseGradient:
    """The gradient of a variable of which a step uses some rows.

    Attributes:
        variable: its path.
        num_rows: of the whole variable.
        row_bytes: of each, in float32.
        looked_up: rows that a worker looks up in a step, a repeated one each time; None where the
            graph of the step does not tell.
    """

    variable: str
    num_rows: int
    row_bytes: int
    looked_up: int | None

    @property
    def dense_bytes(self) -> int:
        """Of all rows."""
        return self.num_rows * self.row_bytes

    @property
    def most_touched_rows(self) -> int | None:
        """That a worker's step can change: fewer where it looks a row up again."""
        return None if self.looked_up is None else min(self.looked_up, self.num_rows)
