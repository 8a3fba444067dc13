"""One worker without any distribution strategy: the base of speed-up and efficiency."""

from __future__ import annotations

from ps_allreduce.backends.local_worker import LocalWorker


class Single(LocalWorker):
    """Trains alone, in TensorFlow's plain mode."""
