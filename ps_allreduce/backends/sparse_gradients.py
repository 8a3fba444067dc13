"""What a record holds of gradients that were sparse when a step was traced."""

from __future__ import annotations

import math

import keras
import numpy as np

from ps_allreduce.record.sparse import SparseGradient


def sparse_gradient(variable: keras.Variable, looked_up: int | None) -> SparseGradient:
    """Of a variable of which a worker looks up so many rows in a step."""
    return SparseGradient(
        variable=variable.path,
        num_rows=int(variable.shape[0]),
        row_bytes=np.dtype(np.float32).itemsize * math.prod(variable.shape[1:]),
        looked_up=looked_up,
    )
