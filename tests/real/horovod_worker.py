"""One of the processes that average a tensor with Horovod; what it finds goes to standard output.

It shows what an installed Horovod can do.  It imports nothing of the suite.
"""

from __future__ import annotations

import json

import horovod.tensorflow as hvd
import tensorflow as tf


@tf.function
def averages(tensor: tf.Tensor) -> list[tf.Tensor]:
    """The tensor and its tenfold, each averaged over all processes, in one exchange."""
    averaged: list[tf.Tensor] = hvd.grouped_allreduce([tensor, 10 * tensor], op=hvd.Average)
    return averaged


def main() -> None:
    """Average what only this process has with what the others have."""
    hvd.init()
    own = tf.constant([1.0, 2.0]) * float(hvd.rank() + 1)
    found = {
        "gloo_built": hvd.gloo_built(),
        "mpi_built": hvd.mpi_built(),
        "size": hvd.size(),
        "sum": hvd.allreduce(own, op=hvd.Sum).numpy().tolist(),
        "averages": [tensor.numpy().tolist() for tensor in averages(own)],
    }
    print(json.dumps(found))
    hvd.shutdown()


main()
